/* The run loop: one case an instruction. */
#pragma once

#include "values.h"
#include "program.h"

#define R(at) (registers[pc[at]])
#define V(at) (*((pc[at] >= 0 ? registers : constants) + (pc[at] ^ (pc[at] >> 31))))
#define REAL(at) real(V(at))
#define GO(at) (pc = code + pc[at])
#define STEP(size) (pc += (size))
#define FAIL_IF(condition)                                                                                        \
    if (UNLIKELY(condition)) {                                                                                    \
        goto failed;                                                                                              \
    }
#define BRANCH(condition, size)                                                                                   \
    if (condition) {                                                                                              \
        STEP(size);                                                                                               \
    } else {                                                                                                      \
        GO((size) - 1);                                                                                           \
    }                                                                                                             \
    NEXT_ONE
#define ASK(question, size, wanted)                                                                               \
    {                                                                                                             \
        int answer = (question);                                                                                  \
        FAIL_IF(answer < 0)                                                                                       \
        BRANCH(answer == (wanted), size)                                                                          \
    }
#define MAKE(made, size)                                                                                          \
    {                                                                                                             \
        PyObject *fresh = (made);                                                                                 \
        FAIL_IF(fresh == NULL)                                                                                    \
        put(registers, pc[1], fresh);                                                                             \
        STEP(size);                                                                                               \
        NEXT_ONE                                                                                                  \
    }

#define NEW_ROW(kind)                                                                                            \
    {                                                                                                            \
        int32_t size = pc[2];                                                                                    \
        PyObject *made = Py##kind##_New(size);                                                                   \
        FAIL_IF(made == NULL)                                                                                    \
        for (int32_t place = 0; place < size; place++) {                                                         \
            Py##kind##_SET_ITEM(made, place, Py_NewRef(REAL(3 + place)));                                        \
        }                                                                                                        \
        put(registers, pc[1], made);                                                                             \
        STEP(3 + size);                                                                                          \
        NEXT_ONE                                                                                                 \
    }
#define CALL_BY(vectorcall)                                                                                      \
    {                                                                                                            \
        int32_t given = pc[3];                                                                                   \
        for (int32_t place = 0; place < given; place++) {                                                        \
            gathered[1 + place] = REAL(4 + place);                                                               \
        }                                                                                                        \
        size_t flags = (size_t)given | PY_VECTORCALL_ARGUMENTS_OFFSET;                                           \
        MAKE(vectorcall(REAL(2), gathered + 1, flags, NULL), 4 + given)                                          \
    }
/* The operand `end` says where to go on behind the last one. */
#define TAKE_NEXT(found, end)                                                                                    \
    PyObject *found = next(&frame->cursors[pc[1]]);                                                              \
    if (found == NULL) {                                                                                         \
        FAIL_IF(PyErr_Occurred())                                                                                \
        finish(&frame->cursors[pc[1]]);                                                                          \
        GO(end);                                                                                                 \
        NEXT_ONE                                                                                                 \
    }
#define NEXT_ROW(size)                                                                                           \
    {                                                                                                            \
        PyObject *parts[size];                                                                                   \
        TAKE_NEXT(found, 2 + (size))                                                                             \
        FAIL_IF(spread(found, parts, size))                                                                      \
        for (int32_t place = 0; place < (size); place++) {                                                       \
            put(registers, pc[2 + place], parts[place]);                                                         \
        }                                                                                                        \
        STEP(3 + (size));                                                                                        \
        NEXT_ONE                                                                                                 \
    }

#if defined(__GNUC__)
#define ON(name) case name: on_##name:
#define NEXT_ONE goto *labels[*pc];
#else
#define ON(name) case name:
#define NEXT_ONE continue;
#endif

static PyObject *run(const Program *program, PyObject *all_constants, Frame *frame)
{
#if defined(__GNUC__)
#define LABEL(name, operands) &&on_##name,
    static const void *const labels[] = {INSTRUCTIONS(LABEL)};
#undef LABEL
#endif
    PyObject **const registers = frame->registers;
    /* The constant that is written -1 is the first one. */
    PyObject **const constants = ((PyTupleObject *)all_constants)->ob_item;
    const int32_t *const code = program->code;
    const int32_t *pc = code;
    PyObject *gathered[MOST_ARGUMENTS + 1];

    for (;;) {
        switch (*pc) {
            ON(MOVE)
            {
                PyObject *value = V(2);
                Py_XINCREF(value);
                put(registers, pc[1], value);
                STEP(3);
                NEXT_ONE
            }
            ON(JUMP) GO(1);
            NEXT_ONE
            ON(JUMP_IF_NONE) BRANCH(!is_none(V(1)), 3)
            ON(JUMP_UNLESS_NONE) BRANCH(is_none(V(1)), 3)
            ON(JUMP_IF_TYPE) BRANCH((PyObject *)Py_TYPE(REAL(1)) != V(2), 4)
            ON(JUMP_UNLESS_TYPE) BRANCH((PyObject *)Py_TYPE(REAL(1)) == V(2), 4)
            ON(JUMP_IF_TRACKED) BRANCH(!is_tracked(V(1)), 3)
            ON(JUMP_UNLESS_TRACKED) BRANCH(is_tracked(V(1)), 3)
            ON(JUMP_IF_TRUE) ASK(truth(V(1)), 3, 0)
            ON(JUMP_UNLESS_TRUE) ASK(truth(V(1)), 3, 1)
            ON(JUMP_IF_IS) BRANCH(REAL(1) != REAL(2), 4)
            ON(JUMP_UNLESS_IS) BRANCH(REAL(1) == REAL(2), 4)
            ON(JUMP_IF_EQUAL) ASK(equals(REAL(1), REAL(2)), 4, 0)
            ON(JUMP_UNLESS_EQUAL) ASK(equals(REAL(1), REAL(2)), 4, 1)
            ON(JUMP_IF_LESS) ASK(is_less(REAL(1), REAL(2)), 4, 0)
            ON(JUMP_UNLESS_LESS) ASK(is_less(REAL(1), REAL(2)), 4, 1)
            ON(JUMP_IF_IN) ASK(contains(REAL(2), REAL(1)), 4, 0)
            ON(JUMP_UNLESS_IN) ASK(contains(REAL(2), REAL(1)), 4, 1)
            ON(FIND)
            {
                PyObject *owner = REAL(2), *key = REAL(3), *found = NULL;
                if (LIKELY(PyDict_CheckExact(owner))) {
                    found = PyDict_GetItemWithError(owner, key);
                    FAIL_IF(found == NULL && PyErr_Occurred())
                    Py_XINCREF(found);
                } else {
                    FAIL_IF(find_elsewhere(owner, key, &found) < 0)
                }
                if (found == NULL) {
                    GO(4);
                    NEXT_ONE
                }
                put(registers, pc[1], found);
                STEP(5);
                NEXT_ONE
            }
            ON(GET) MAKE(get(REAL(2), REAL(3), V(4)), 5)
            ON(ITEM) MAKE(item(REAL(2), REAL(3)), 4)
            ON(SET_ITEM)
            {
                PyObject *owner = REAL(1);
                int failed = PyDict_CheckExact(owner) ? PyDict_SetItem(owner, REAL(2), REAL(3))
                                                      : PyObject_SetItem(owner, REAL(2), REAL(3));
                FAIL_IF(failed)
                STEP(4);
                NEXT_ONE
            }
            ON(DELETE_ITEM)
            FAIL_IF(PyObject_DelItem(REAL(1), REAL(2)))
            STEP(3);
            NEXT_ONE
            ON(APPEND)
            {
                PyObject *owner = REAL(1);
                if (LIKELY(PyList_CheckExact(owner))) {
                    FAIL_IF(PyList_Append(owner, REAL(2)))
                } else {
                    PyObject *result = PyObject_CallMethod(owner, "append", "(O)", REAL(2));
                    FAIL_IF(result == NULL)
                    Py_DECREF(result);
                }
                STEP(3);
                NEXT_ONE
            }
            ON(NEW_DICT) MAKE(PyDict_New(), 2)
            ON(NEW_DICT_OF)
            {
                PyObject *made = PyDict_New();
                FAIL_IF(made == NULL)
                if (UNLIKELY(PyDict_SetItem(made, REAL(2), REAL(3)))) {
                    Py_DECREF(made);
                    goto failed;
                }
                put(registers, pc[1], made);
                STEP(4);
                NEXT_ONE
            }
            ON(NEW_LIST) NEW_ROW(List)
            ON(NEW_TUPLE) NEW_ROW(Tuple)
            ON(TYPE) MAKE(Py_NewRef((PyObject *)Py_TYPE(REAL(2))), 3)
            ON(LENGTH)
            {
                Py_ssize_t size = length(REAL(2));
                FAIL_IF(size < 0)
                MAKE(PyLong_FromSsize_t(size), 3)
            }
            ON(CALL) CALL_BY(PyObject_Vectorcall)
            ON(CALL_METHOD) CALL_BY(PyObject_VectorcallMethod)
            ON(ADD)
            {
                PyObject *one = REAL(2), *other = REAL(3);
                MAKE(PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other) ? PyUnicode_Concat(one, other)
                                                                              : PyNumber_Add(one, other),
                     4)
            }
            ON(SUBTRACT) MAKE(PyNumber_Subtract(REAL(2), REAL(3)), 4)
            ON(MULTIPLY) MAKE(PyNumber_Multiply(REAL(2), REAL(3)), 4)
            ON(ITERATE)
            FAIL_IF(iterate(&frame->cursors[pc[1]], REAL(2)))
            STEP(3);
            NEXT_ONE
            ON(NEXT)
            {
                TAKE_NEXT(found, 3)
                put(registers, pc[2], found);
                STEP(4);
                NEXT_ONE
            }
            ON(NEXT_TWO) NEXT_ROW(2)
            ON(NEXT_THREE) NEXT_ROW(3)
            ON(ITERATE_ITEMS)
            FAIL_IF(iterate_dict(&frame->cursors[pc[1]], REAL(2), "items"))
            STEP(3);
            NEXT_ONE
            ON(NEXT_ITEM)
            {
                Cursor *cursor = &frame->cursors[pc[1]];
                PyObject *parts[2];
                int outcome;
                if (cursor->over != NULL && PyDict_CheckExact(cursor->over)) {
                    outcome = next_entry(cursor, &parts[0], &parts[1]);
                } else {
                    PyObject *row = next(cursor);
                    outcome = row != NULL ? (spread(row, parts, 2) ? -1 : 1) : PyErr_Occurred() ? -1 : 0;
                }
                FAIL_IF(outcome < 0)
                if (outcome == 0) {
                    finish(cursor);
                    GO(4);
                    NEXT_ONE
                }
                put(registers, pc[2], parts[0]);
                put(registers, pc[3], parts[1]);
                STEP(5);
                NEXT_ONE
            }
            ON(RETURN) return Py_NewRef(REAL(1));
            ON(RAISE)
            raise_alone(REAL(1));
            goto failed;
        }
    failed:;
        int32_t at = handle(program, frame);
        if (at < 0) {
            return NULL;
        }
        pc = code + at;
    }
}
