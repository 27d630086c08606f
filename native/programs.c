/* Runs mapping functions: the second back end of generated code. transforms/generation/lowering.py turns a verified
 * syntax tree into a program for the machine below; the function that Python's compiler makes of the same tree says
 * what is right, and tests/transforms/generation hold the two equal. See README.md.
 *
 * Why no program can crash: `Program` checks, before it keeps one, that every operand is a register, constant, counter
 * or cursor that there is, and that every jump leads to the start of an instruction. An instruction looks at the types
 * of what it gets each time; what is not of the exact type that it is quick for goes to CPython's general function.
 *
 * A register holds a reference of its own; NULL in it is None. Nothing outlives a run but the hints.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE 0
#endif

#if defined(__GNUC__)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#else
#define LIKELY(condition) (condition)
#define UNLIKELY(condition) (condition)
#endif

/* Each instruction with its operands: `w` a register that is written, `v` a register or (below zero) a constant that
 * is read, `j` where to jump, `i` a number, `n` a counter, `c` a cursor, `s` a site, `h` a hint (-1 for
 * none: one holds for one constant key), `*` how many `v` follow. */
#define INSTRUCTIONS(ONE)                                                                                         \
    ONE(MOVE, "wv")                                                                                               \
    ONE(JUMP, "j")                                                                                                \
    ONE(JUMP_IF_NONE, "vj")                                                                                       \
    ONE(JUMP_UNLESS_NONE, "vj")                                                                                   \
    ONE(JUMP_IF_TYPE, "vvj")                                                                                      \
    ONE(JUMP_UNLESS_TYPE, "vvj")                                                                                  \
    ONE(JUMP_IF_TRACKED, "vj")                                                                                    \
    ONE(JUMP_UNLESS_TRACKED, "vj")                                                                                \
    ONE(JUMP_UNLESS_ANY_TRACKED, "vj")                                                                            \
    ONE(JUMP_IF_TRUE, "vj")                                                                                       \
    ONE(JUMP_UNLESS_TRUE, "vj")                                                                                   \
    ONE(JUMP_IF_IS, "vvj")                                                                                        \
    ONE(JUMP_UNLESS_IS, "vvj")                                                                                    \
    ONE(JUMP_IF_EQUAL, "vvj")                                                                                     \
    ONE(JUMP_UNLESS_EQUAL, "vvj")                                                                                 \
    ONE(JUMP_IF_LESS, "vvj")                                                                                      \
    ONE(JUMP_UNLESS_LESS, "vvj")                                                                                  \
    ONE(JUMP_UNLESS_SHORTER, "vij")                                                                               \
    ONE(JUMP_UNLESS_LONGER, "vij")                                                                                \
    ONE(JUMP_IF_IN, "vvj")                                                                                        \
    ONE(JUMP_UNLESS_IN, "vvj")                                                                                    \
    ONE(FIND, "wvvhj")                                                                                            \
    ONE(SCAN, "sv")                                                                                               \
    ONE(FIND_SCANNED, "wvvsij")                                                                                   \
    ONE(GET_SCANNED, "wvvvsi")                                                                                    \
    ONE(JUMP_UNLESS_NONE_AT, "vvj")                                                                               \
    ONE(GET, "wvvvh")                                                                                             \
    ONE(ITEM, "wvvh")                                                                                             \
    ONE(SET_ITEM, "vvv")                                                                                          \
    ONE(DELETE_ITEM, "vv")                                                                                        \
    ONE(APPEND, "vv")                                                                                             \
    ONE(NEW_DICT, "w")                                                                                            \
    ONE(NEW_DICT_OF, "wvv")                                                                                       \
    ONE(NEW_LIST, "w*")                                                                                           \
    ONE(NEW_TUPLE, "w*")                                                                                          \
    ONE(TYPE, "wv")                                                                                               \
    ONE(LENGTH, "wv")                                                                                             \
    ONE(CALL, "wv*")                                                                                              \
    ONE(CALL_METHOD, "wv*")                                                                                       \
    ONE(ADD, "wvv")                                                                                               \
    ONE(SUBTRACT, "wvv")                                                                                          \
    ONE(MULTIPLY, "wvv")                                                                                          \
    ONE(COUNTER, "ni")                                                                                            \
    ONE(TAKE, "nvi")                                                                                              \
    ONE(JUMP_UNLESS_BELOW, "nij")                                                                                 \
    ONE(COUNTED, "wn")                                                                                            \
    ONE(ITERATE, "cv")                                                                                            \
    ONE(NEXT, "cwj")                                                                                              \
    ONE(NEXT_TWO, "cwwj")                                                                                         \
    ONE(NEXT_THREE, "cwwwj")                                                                                      \
    ONE(ITERATE_ITEMS, "cv")                                                                                      \
    ONE(NEXT_ITEM, "cwwj")                                                                                        \
    ONE(RETURN, "v")                                                                                              \
    ONE(RAISE, "v")

#define NUMBER(name, operands) name,
enum { INSTRUCTIONS(NUMBER) HOW_MANY };
#undef NUMBER

static const struct {
    const char *name, *operands;
} instructions[] = {
#define ENTRY(name, operands) {#name, operands},
    INSTRUCTIONS(ENTRY)
#undef ENTRY
};

/* Values were made long before they are read here, and many others since: fetching one is what takes longest. */
#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

#define MOST_REGISTERS 100000
#define ON_STACK 160
#define MOST_ARGUMENTS 64

/* Where a key stood in the object before: as a rule the next one has it at the same place, as the same object. */
typedef struct {
    PyObject *key;
    Py_ssize_t position;
    int trust, tries;
} Hint;

typedef struct {
    PyObject *over;
    Py_ssize_t position, size;
} Cursor;

#define MOST_KEYS 48
#define MOST_SHAPES 32
#define LONGEST_KEYS 4096
#define ABSENT (-1)

/* The keys that an object of the event has, as objects, and where among them the keys of a spec are. */
typedef struct {
    Py_ssize_t size;
    int16_t *positions;
    PyObject *keys[];
} Shape;

/* Looks for some keys of the spec in objects at one place of it, which are of few shapes. */
typedef struct {
    PyObject *wanted;
    /* Once there, a shape stays: a run in another thread may be using it. */
    Shape *shapes[MOST_SHAPES];
} Site;

/* What a site found in the object that it looked at last, and that object's version then. */
typedef struct {
    const Shape *shape;
    PyObject *object;
    uint64_t version;
} Scan;

/* A number that changes whenever a dict does, and that no other dict has. Python 3.12 deprecates it; without it a
 * key that was not there is looked up. */
#if PY_VERSION_HEX < 0x030C0000
#define VERSION(dict) (((PyDictObject *)(dict))->ma_version_tag)
#define HAS_VERSION(dict, version) (VERSION(dict) == (version))
#else
#define VERSION(dict) 0
#define HAS_VERSION(dict, version) ((void)(version), false)
#endif

/* What happens to an exception: the register that gets it, and where to go on. */
typedef struct {
    PyObject *type;
    int32_t into, at;
} Handler;

typedef struct {
    PyObject ob_base;
    vectorcallfunc vectorcall;
    PyObject *constants;
    int32_t *code;
    Hint *hints;
    Site *sites;
    Handler *handlers;
    Py_ssize_t length;
    int32_t required, arguments, registers, counters, cursors, hint_count, site_count, handler_count;
} Program;

typedef struct {
    PyObject **registers;
    int64_t *counters;
    Cursor *cursors;
    Scan *scans;
    /* The exception that was being handled when a handler began, if one did. */
    PyObject *handled;
    bool handling;
} Frame;

/* ---- reading, writing ---- */

static inline void put(PyObject **registers, int32_t place, PyObject *made)
{
    PyObject *old = registers[place];
    registers[place] = made;
    Py_XDECREF(old);
}

static inline bool is_none(PyObject *value)
{
    return value == NULL || value == Py_None;
}

static inline PyObject *real(PyObject *value)
{
    return value == NULL ? Py_None : value;
}

#define TRUST 8
#define TRIES 64

/* Notes where a key stands. */
static void learn(PyObject *dict, PyObject *value, PyObject *key, Hint *hint)
{
    PyObject *known, *found;
    Py_ssize_t place = 0, position = 0;
    hint->tries--;
    while (PyDict_Next(dict, &place, &known, &found)) {
        if (found == value && PyUnicode_CheckExact(known) && PyUnicode_Compare(known, key) == 0) {
            Py_XSETREF(hint->key, Py_NewRef(known));
            hint->position = position;
            hint->trust = TRUST;
            return;
        }
        position = place;
    }
}

/* The value at a key of a dict, borrowed; NULL, with or without an exception, if there is none. */
static inline PyObject *look_up(PyObject *dict, PyObject *key, Hint *hint)
{
    if (hint == NULL) {
        return PyDict_GetItemWithError(dict, key);
    }
    if (hint->trust > 0) {
        PyObject *known, *value;
        Py_ssize_t position = hint->position;
        if (LIKELY(PyDict_Next(dict, &position, &known, &value) && known == hint->key)) {
            return value;
        }
        hint->trust--;
    }
    PyObject *value = PyDict_GetItemWithError(dict, key);
    if (value != NULL && hint->trust == 0 && hint->tries > 0 && PyUnicode_CheckExact(key)) {
        learn(dict, value, key, hint);
    }
    return value;
}

/* ---- shapes ---- */

static Shape *new_shape(const Site *site, PyObject **keys, Py_ssize_t size)
{
    Py_ssize_t wanted = PyTuple_GET_SIZE(site->wanted);
    Shape *made = PyMem_Calloc(1, sizeof(Shape) + (size_t)size * sizeof(PyObject *));
    int16_t *positions = PyMem_Calloc((size_t)wanted + 1, sizeof(int16_t));
    if (made == NULL || positions == NULL) {
        PyMem_Free(made);
        PyMem_Free(positions);
        return NULL;
    }
    made->size = size;
    made->positions = positions;
    for (Py_ssize_t place = 0; place < size; place++) {
        made->keys[place] = Py_NewRef(keys[place]);
    }
    for (Py_ssize_t number = 0; number < wanted; number++) {
        positions[number] = ABSENT;
        for (Py_ssize_t place = 0; place < size; place++) {
            if (PyUnicode_Compare(PyTuple_GET_ITEM(site->wanted, number), keys[place]) == 0) {
                positions[number] = (int16_t)place;
            }
        }
    }
    return made;
}

static void free_shape(Shape *shape)
{
    for (Py_ssize_t place = 0; place < shape->size; place++) {
        Py_DECREF(shape->keys[place]);
    }
    PyMem_Free(shape->positions);
    PyMem_Free(shape);
}

static bool is_short(PyObject **keys, Py_ssize_t size)
{
    Py_ssize_t characters = 0;
    for (Py_ssize_t place = 0; place < size; place++) {
        characters += PyUnicode_GET_LENGTH(keys[place]);
    }
    return characters <= LONGEST_KEYS;
}

/* The shape with these keys, of which `mixed` is a digest; NULL where there is no room for one more. */
static const Shape *shape_of(Site *site, PyObject **keys, Py_ssize_t size, uint64_t mixed)
{
    size_t first = (size_t)(mixed >> 32) % MOST_SHAPES;
    for (int number = 0; number < 2; number++) {
        size_t place = first ^ (size_t)number;
        Shape *shape = site->shapes[place];
        if (shape == NULL) {
            return site->shapes[place] = is_short(keys, size) ? new_shape(site, keys, size) : NULL;
        }
        if (shape->size == size && memcmp(shape->keys, keys, (size_t)size * sizeof(PyObject *)) == 0) {
            return shape;
        }
    }
    return NULL;
}

/* Looks at all keys of an object at once, and fetches what stands there: it was made long ago. */
static void scan_object(Site *site, Scan *scan, PyObject *object)
{
    scan->shape = NULL;
    if (!PyDict_CheckExact(object) || PyDict_GET_SIZE(object) > MOST_KEYS) {
        return;
    }
    PyObject *keys[MOST_KEYS], *value;
    Py_ssize_t size = 0, position = 0;
    uint64_t mixed = 0;
    while (size < MOST_KEYS && PyDict_Next(object, &position, &keys[size], &value)) {
        FETCH(value);
        mixed = (mixed ^ (uintptr_t)keys[size] >> 4) * 0x9E3779B97F4A7C15U;
        /* Where something was removed, places are not counted as they are here. */
        if (position != ++size || !PyUnicode_CheckExact(keys[size - 1])) {
            return;
        }
    }
    scan->object = object;
    scan->version = VERSION(object);
    scan->shape = shape_of(site, keys, size, mixed);
}

/* As `look_up`, for the key of this number that the scan's site wants. Where one stood is seen when it is read there;
 * that one is still absent only the version tells: another name of the object may have removed one key and set
 * another. */
static inline PyObject *look_up_scanned(const Scan *scan, PyObject *object, PyObject *key, int32_t number)
{
    const Shape *shape = scan->shape;
    if (LIKELY(shape != NULL && scan->object == object && PyDict_GET_SIZE(object) == shape->size)) {
        Py_ssize_t position = shape->positions[number];
        if (position == ABSENT) {
            if (LIKELY(HAS_VERSION(object, scan->version))) {
                return NULL;
            }
        } else {
            PyObject *known, *value, *expected = shape->keys[position];
            if (LIKELY(PyDict_Next(object, &position, &known, &value) && known == expected)) {
                return value;
            }
        }
    }
    return PyDict_GetItemWithError(object, key);
}

static int truth(PyObject *value)
{
    if (is_none(value) || value == Py_False) {
        return 0;
    }
    return value == Py_True ? 1 : PyObject_IsTrue(value);
}

static inline bool is_tracked(PyObject *value)
{
    return value != NULL && (Py_TYPE(value)->tp_flags & Py_TPFLAGS_HAVE_GC) && PyObject_GC_IsTracked(value);
}

static int equals(PyObject *one, PyObject *other)
{
    if (PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other)) {
        if (one == other) {
            return 1;
        }
        if (PyUnicode_GET_LENGTH(one) != PyUnicode_GET_LENGTH(other) ||
            PyUnicode_KIND(one) != PyUnicode_KIND(other)) {
            return 0;
        }
        return memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other),
                      (size_t)PyUnicode_GET_LENGTH(one) * PyUnicode_KIND(one)) == 0;
    }
    PyObject *answer = PyObject_RichCompare(one, other, Py_EQ);
    if (answer == NULL) {
        return -1;
    }
    int is_equal = truth(answer);
    Py_DECREF(answer);
    return is_equal;
}

static int is_less(PyObject *one, PyObject *other)
{
    if (PyLong_CheckExact(one) && PyLong_CheckExact(other)) {
        int too_long, other_too_long;
        long number = PyLong_AsLongAndOverflow(one, &too_long);
        long second = PyLong_AsLongAndOverflow(other, &other_too_long);
        if (!too_long && !other_too_long) {
            return number < second;
        }
    }
    PyObject *answer = PyObject_RichCompare(one, other, Py_LT);
    if (answer == NULL) {
        return -1;
    }
    int less = truth(answer);
    Py_DECREF(answer);
    return less;
}

static inline Py_ssize_t length(PyObject *value)
{
    if (PyUnicode_CheckExact(value)) {
        return PyUnicode_GET_LENGTH(value);
    }
    if (PyDict_CheckExact(value)) {
        return PyDict_GET_SIZE(value);
    }
    return PyObject_Size(value);
}

static int contains(PyObject *owner, PyObject *key)
{
    return PyDict_CheckExact(owner) ? PyDict_Contains(owner, key) : PySequence_Contains(owner, key);
}

/* A new reference. */
static PyObject *item(PyObject *owner, PyObject *key, Hint *hint)
{
    if (PyDict_CheckExact(owner)) {
        PyObject *found = look_up(owner, key, hint);
        if (found != NULL) {
            return Py_NewRef(found);
        }
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    return PyObject_GetItem(owner, key);
}

static PyObject *text_get;

/* `owner.get(key, missing)`; without `missing` (NULL) None. A new reference. */
static PyObject *get(PyObject *owner, PyObject *key, PyObject *missing, Hint *hint)
{
    if (LIKELY(PyDict_CheckExact(owner))) {
        PyObject *found = look_up(owner, key, hint);
        if (found == NULL) {
            if (PyErr_Occurred()) {
                return NULL;
            }
            found = real(missing);
        }
        return Py_NewRef(found);
    }
    PyObject *arguments[] = {owner, key, missing};
    return PyObject_VectorcallMethod(text_get, arguments, missing == NULL ? 2 : 3, NULL);
}

/* `True in map(is_tracked, over)` */
static int any_tracked(PyObject *over)
{
    if (PyList_CheckExact(over)) {
        for (Py_ssize_t place = 0; place < PyList_GET_SIZE(over); place++) {
            if (is_tracked(PyList_GET_ITEM(over, place))) {
                return 1;
            }
        }
        return 0;
    }
    PyObject *walk = PyObject_GetIter(over), *each;
    if (walk == NULL) {
        return -1;
    }
    bool found = false;
    while (!found && (each = PyIter_Next(walk)) != NULL) {
        found = is_tracked(each);
        Py_DECREF(each);
    }
    Py_DECREF(walk);
    return PyErr_Occurred() ? -1 : found;
}

/* ---- loops ---- */

static void finish(Cursor *cursor)
{
    Py_CLEAR(cursor->over);
}

static int iterate(Cursor *cursor, PyObject *over)
{
    PyObject *walked = PyList_CheckExact(over) ? Py_NewRef(over) : PyObject_GetIter(over);
    Py_XSETREF(cursor->over, walked);
    cursor->position = 0;
    return walked == NULL ? -1 : 0;
}

/* A new reference; NULL at the end, or with an exception. */
static PyObject *next(Cursor *cursor)
{
    PyObject *over = cursor->over;
    if (over == NULL) {
        return NULL;
    }
    if (PyList_CheckExact(over)) {
        return cursor->position < PyList_GET_SIZE(over) ? Py_NewRef(PyList_GET_ITEM(over, cursor->position++))
                                                        : NULL;
    }
    return PyIter_Next(over);
}

/* As `next`, for the items or values of a dict. */
static int iterate_dict(Cursor *cursor, PyObject *over, const char *what)
{
    if (!PyDict_CheckExact(over)) {
        PyObject *view = PyObject_CallMethod(over, what, NULL);
        if (view == NULL) {
            return -1;
        }
        int outcome = iterate(cursor, view);
        Py_DECREF(view);
        return outcome;
    }
    Py_XSETREF(cursor->over, Py_NewRef(over));
    cursor->position = 0;
    cursor->size = PyDict_GET_SIZE(over);
    return 0;
}

/* 1 with new references, 0 at the end, -1 with an exception. */
static int next_entry(Cursor *cursor, PyObject **key, PyObject **value)
{
    PyObject *over = cursor->over;
    if (over == NULL) {
        return 0;
    }
    if (PyDict_GET_SIZE(over) != cursor->size) {
        PyErr_SetString(PyExc_RuntimeError, "dictionary changed size during iteration");
        return -1;
    }
    if (!PyDict_Next(over, &cursor->position, key, value)) {
        return 0;
    }
    Py_INCREF(*key);
    Py_INCREF(*value);
    return 1;
}

/* Takes apart what must be a row of so many; steals it. */
static int spread(PyObject *row, PyObject **parts, Py_ssize_t wanted)
{
    if (PyTuple_CheckExact(row) && PyTuple_GET_SIZE(row) == wanted) {
        for (Py_ssize_t place = 0; place < wanted; place++) {
            parts[place] = Py_NewRef(PyTuple_GET_ITEM(row, place));
        }
        Py_DECREF(row);
        return 0;
    }
    PyObject *listed = PySequence_Fast(row, "cannot unpack a value that is no sequence");
    Py_DECREF(row);
    if (listed == NULL) {
        return -1;
    }
    if (PySequence_Fast_GET_SIZE(listed) != wanted) {
        PyErr_SetString(PyExc_ValueError, "cannot unpack a sequence of another length");
        Py_DECREF(listed);
        return -1;
    }
    for (Py_ssize_t place = 0; place < wanted; place++) {
        parts[place] = Py_NewRef(PySequence_Fast_GET_ITEM(listed, place));
    }
    Py_DECREF(listed);
    return 0;
}

/* ---- exceptions ---- */

static PyObject *raised(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Where the code goes on after an exception, -1 if nowhere. */
static int32_t handle(const Program *program, Frame *frame)
{
    if (frame->handling) {
        return -1;
    }
    for (int32_t place = 0; place < program->handler_count; place++) {
        const Handler *handler = &program->handlers[place];
        /* The collector may have taken it. */
        if (handler->type != NULL && PyErr_ExceptionMatches(handler->type)) {
            PyObject *error = raised();
            frame->handling = true;
            frame->handled = PyErr_GetHandledException();
            PyErr_SetHandledException(error);
            put(frame->registers, handler->into, error);
            return handler->at;
        }
    }
    return -1;
}

/* `raise error from None`, while another may be handled. */
static void raise_alone(PyObject *error)
{
    if (!PyExceptionInstance_Check(error)) {
        PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
        return;
    }
    PyException_SetCause(error, NULL);
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
}

/* ---- the machine ---- */

#define R(at) (registers[pc[at]])
#define V(at) (*((pc[at] >= 0 ? registers : constants) + (pc[at] ^ (pc[at] >> 31))))
#define REAL(at) real(V(at))
#define HINT(at) (pc[at] < 0 ? NULL : &hints[pc[at]])
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
    Hint *const hints = program->hints;
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
            ON(JUMP_UNLESS_ANY_TRACKED) ASK(any_tracked(REAL(1)), 3, 1)
            ON(JUMP_IF_TRUE) ASK(truth(V(1)), 3, 0)
            ON(JUMP_UNLESS_TRUE) ASK(truth(V(1)), 3, 1)
            ON(JUMP_IF_IS) BRANCH(REAL(1) != REAL(2), 4)
            ON(JUMP_UNLESS_IS) BRANCH(REAL(1) == REAL(2), 4)
            ON(JUMP_IF_EQUAL) ASK(equals(REAL(1), REAL(2)), 4, 0)
            ON(JUMP_UNLESS_EQUAL) ASK(equals(REAL(1), REAL(2)), 4, 1)
            ON(JUMP_IF_LESS) ASK(is_less(REAL(1), REAL(2)), 4, 0)
            ON(JUMP_UNLESS_LESS) ASK(is_less(REAL(1), REAL(2)), 4, 1)
            ON(JUMP_UNLESS_SHORTER)
            {
                Py_ssize_t size = length(REAL(1));
                FAIL_IF(size < 0)
                BRANCH(size < pc[2], 4)
            }
            ON(JUMP_UNLESS_LONGER)
            {
                Py_ssize_t size = length(REAL(1));
                FAIL_IF(size < 0)
                BRANCH(size > pc[2], 4)
            }
            ON(JUMP_IF_IN) ASK(contains(REAL(2), REAL(1)), 4, 0)
            ON(JUMP_UNLESS_IN) ASK(contains(REAL(2), REAL(1)), 4, 1)
            ON(FIND)
            {
                PyObject *owner = REAL(2), *key = REAL(3), *found;
                if (LIKELY(PyDict_CheckExact(owner))) {
                    found = look_up(owner, key, HINT(4));
                    if (found == NULL) {
                        FAIL_IF(PyErr_Occurred())
                        GO(5);
                        NEXT_ONE
                    }
                    Py_INCREF(found);
                } else {
                    int is_in = PySequence_Contains(owner, key);
                    FAIL_IF(is_in < 0)
                    if (!is_in) {
                        GO(5);
                        NEXT_ONE
                    }
                    found = PyObject_GetItem(owner, key);
                    FAIL_IF(found == NULL)
                }
                put(registers, pc[1], found);
                STEP(6);
                NEXT_ONE
            }
            ON(SCAN) scan_object(&program->sites[pc[1]], &frame->scans[pc[1]], REAL(2));
            STEP(3);
            NEXT_ONE
            ON(FIND_SCANNED)
            {
                PyObject *owner = REAL(2), *key = REAL(3), *found;
                if (LIKELY(PyDict_CheckExact(owner))) {
                    found = look_up_scanned(&frame->scans[pc[4]], owner, key, pc[5]);
                    if (found == NULL) {
                        FAIL_IF(PyErr_Occurred())
                        GO(6);
                        NEXT_ONE
                    }
                    Py_INCREF(found);
                } else {
                    int is_in = PySequence_Contains(owner, key);
                    FAIL_IF(is_in < 0)
                    if (!is_in) {
                        GO(6);
                        NEXT_ONE
                    }
                    found = PyObject_GetItem(owner, key);
                    FAIL_IF(found == NULL)
                }
                put(registers, pc[1], found);
                STEP(7);
                NEXT_ONE
            }
            ON(GET_SCANNED)
            {
                PyObject *owner = REAL(2);
                if (LIKELY(PyDict_CheckExact(owner))) {
                    PyObject *found = look_up_scanned(&frame->scans[pc[5]], owner, REAL(3), pc[6]);
                    FAIL_IF(found == NULL && PyErr_Occurred())
                    if (found == NULL) {
                        found = V(4);
                    }
                    Py_XINCREF(found);
                    put(registers, pc[1], found);
                    STEP(7);
                    NEXT_ONE
                }
                MAKE(get(owner, REAL(3), V(4), NULL), 7)
            }
            ON(JUMP_UNLESS_NONE_AT)
            {
                PyObject *owner = REAL(1);
                if (LIKELY(PyDict_CheckExact(owner))) {
                    PyObject *found = PyDict_GetItemWithError(owner, REAL(2));
                    FAIL_IF(found == NULL && PyErr_Occurred())
                    BRANCH(is_none(found), 4)
                }
                PyObject *found = get(owner, REAL(2), NULL, NULL);
                FAIL_IF(found == NULL)
                bool was_none = found == Py_None;
                Py_DECREF(found);
                BRANCH(was_none, 4)
            }
            ON(GET) MAKE(get(REAL(2), REAL(3), V(4), HINT(5)), 6)
            ON(ITEM) MAKE(item(REAL(2), REAL(3), HINT(4)), 5)
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
            ON(NEW_LIST)
            {
                int32_t size = pc[2];
                PyObject *made = PyList_New(size);
                FAIL_IF(made == NULL)
                for (int32_t place = 0; place < size; place++) {
                    PyList_SET_ITEM(made, place, Py_NewRef(REAL(3 + place)));
                }
                put(registers, pc[1], made);
                STEP(3 + size);
                NEXT_ONE
            }
            ON(NEW_TUPLE)
            {
                int32_t size = pc[2];
                PyObject *made = PyTuple_New(size);
                FAIL_IF(made == NULL)
                for (int32_t place = 0; place < size; place++) {
                    PyTuple_SET_ITEM(made, place, Py_NewRef(REAL(3 + place)));
                }
                put(registers, pc[1], made);
                STEP(3 + size);
                NEXT_ONE
            }
            ON(TYPE) MAKE(Py_NewRef((PyObject *)Py_TYPE(REAL(2))), 3)
            ON(LENGTH)
            {
                Py_ssize_t size = length(REAL(2));
                FAIL_IF(size < 0)
                MAKE(PyLong_FromSsize_t(size), 3)
            }
            ON(CALL)
            {
                int32_t given = pc[3];
                for (int32_t place = 0; place < given; place++) {
                    gathered[1 + place] = REAL(4 + place);
                }
                PyObject *result = PyObject_Vectorcall(
                    REAL(2), gathered + 1, (size_t)given | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
                MAKE(result, 4 + given)
            }
            ON(CALL_METHOD)
            {
                int32_t given = pc[3];
                for (int32_t place = 0; place < given; place++) {
                    gathered[1 + place] = REAL(4 + place);
                }
                PyObject *result = PyObject_VectorcallMethod(
                    REAL(2), gathered + 1, (size_t)given | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
                MAKE(result, 4 + given)
            }
            ON(ADD)
            {
                PyObject *one = REAL(2), *other = REAL(3);
                MAKE(PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other) ? PyUnicode_Concat(one, other)
                                                                              : PyNumber_Add(one, other),
                     4)
            }
            ON(SUBTRACT) MAKE(PyNumber_Subtract(REAL(2), REAL(3)), 4)
            ON(MULTIPLY) MAKE(PyNumber_Multiply(REAL(2), REAL(3)), 4)
            ON(COUNTER) frame->counters[pc[1]] = pc[2];
            STEP(3);
            NEXT_ONE
            ON(TAKE)
            {
                Py_ssize_t size = length(REAL(2));
                FAIL_IF(size < 0)
                int64_t most = INT64_MAX / 4 / pc[3];
                frame->counters[pc[1]] -= (size < most ? size : most) * pc[3];
                STEP(4);
                NEXT_ONE
            }
            ON(JUMP_UNLESS_BELOW) BRANCH(frame->counters[pc[1]] < pc[2], 4)
            ON(COUNTED) MAKE(PyLong_FromLongLong(frame->counters[pc[2]]), 3)
            ON(ITERATE)
            FAIL_IF(iterate(&frame->cursors[pc[1]], REAL(2)))
            STEP(3);
            NEXT_ONE
            ON(NEXT)
            {
                PyObject *found = next(&frame->cursors[pc[1]]);
                if (found == NULL) {
                    FAIL_IF(PyErr_Occurred())
                    finish(&frame->cursors[pc[1]]);
                    GO(3);
                    NEXT_ONE
                }
                put(registers, pc[2], found);
                STEP(4);
                NEXT_ONE
            }
            ON(NEXT_TWO)
            {
                PyObject *parts[2], *found = next(&frame->cursors[pc[1]]);
                if (found == NULL) {
                    FAIL_IF(PyErr_Occurred())
                    finish(&frame->cursors[pc[1]]);
                    GO(4);
                    NEXT_ONE
                }
                FAIL_IF(spread(found, parts, 2))
                put(registers, pc[2], parts[0]);
                put(registers, pc[3], parts[1]);
                STEP(5);
                NEXT_ONE
            }
            ON(NEXT_THREE)
            {
                PyObject *parts[3], *found = next(&frame->cursors[pc[1]]);
                if (found == NULL) {
                    FAIL_IF(PyErr_Occurred())
                    finish(&frame->cursors[pc[1]]);
                    GO(5);
                    NEXT_ONE
                }
                FAIL_IF(spread(found, parts, 3))
                put(registers, pc[2], parts[0]);
                put(registers, pc[3], parts[1]);
                put(registers, pc[4], parts[2]);
                STEP(6);
                NEXT_ONE
            }
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

static PyObject *call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names)
{
    const Program *program = (Program *)self;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if (given < program->required || given > program->arguments || (names && PyTuple_GET_SIZE(names))) {
        PyErr_Format(PyExc_TypeError, "%zd arguments where %d to %d are needed", given, program->required,
                     program->arguments);
        return NULL;
    }
    if (program->constants == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the collector has taken this program apart");
        return NULL;
    }
    PyObject *registers_here[ON_STACK];
    int64_t counters_here[8];
    Cursor cursors_here[16];
    Scan scans_here[32];
    Frame frame = {registers_here, counters_here, cursors_here, scans_here, NULL, false};
    char *borrowed = NULL;
    size_t registers = (size_t)program->registers, cursors = (size_t)program->cursors;
    size_t scans = (size_t)program->site_count;
    if (registers > ON_STACK || cursors > 16 || program->counters > 8 || scans > 32) {
        borrowed = PyMem_Malloc(registers * sizeof(PyObject *) + cursors * sizeof(Cursor) + scans * sizeof(Scan) +
                                (size_t)program->counters * sizeof(int64_t));
        if (borrowed == NULL) {
            return PyErr_NoMemory();
        }
        frame.counters = (int64_t *)borrowed;
        frame.cursors = (Cursor *)(frame.counters + program->counters);
        frame.scans = (Scan *)(frame.cursors + cursors);
        frame.registers = (PyObject **)(frame.scans + scans);
    }
    memset(frame.registers, 0, registers * sizeof(PyObject *));
    memset(frame.cursors, 0, cursors * sizeof(Cursor));
    memset(frame.scans, 0, scans * sizeof(Scan));
    memset(frame.counters, 0, (size_t)program->counters * sizeof(int64_t));
    for (Py_ssize_t place = 0; place < given; place++) {
        frame.registers[place] = Py_NewRef(arguments[place]);
    }
    Py_INCREF(self);
    PyObject *constants = Py_NewRef(program->constants);
    PyObject *result = run(program, constants, &frame);
    for (size_t place = 0; place < registers; place++) {
        Py_XDECREF(frame.registers[place]);
    }
    for (size_t place = 0; place < cursors; place++) {
        Py_XDECREF(frame.cursors[place].over);
    }
    if (frame.handling) {
        PyErr_SetHandledException(frame.handled);
        Py_XDECREF(frame.handled);
    }
    PyMem_Free(borrowed);
    Py_DECREF(constants);
    Py_DECREF(self);
    return result;
}

/* ---- reading a program ---- */

typedef struct {
    const Program *program;
    int32_t registers, counters, cursors, hints, constants;
} Bounds;

static bool is_operand(const Bounds *bounds, char kind, int32_t operand)
{
    switch (kind) {
        case 'w':
            return operand >= 0 && operand < bounds->registers;
        case 'v':
            return operand >= 0 ? operand < bounds->registers : ~operand < bounds->constants;
        case 'n':
            return operand >= 0 && operand < bounds->counters;
        case 'c':
            return operand >= 0 && operand < bounds->cursors;
        case 'h':
            return operand >= -1 && operand < bounds->hints;
        case 's':
            return operand >= 0 && operand < bounds->program->site_count;
        default:
            return true;
    }
}

/* The length of the instruction at a place, with its operands checked but for jumps; 0 if it is none. */
static Py_ssize_t instruction_size(const Bounds *bounds, Py_ssize_t at)
{
    const int32_t *code = bounds->program->code;
    Py_ssize_t left = bounds->program->length - at, size = 1;
    if (code[at] < 0 || code[at] >= HOW_MANY) {
        return 0;
    }
    for (const char *kind = instructions[code[at]].operands; *kind; kind++, size++) {
        if (size >= left) {
            return 0;
        }
        if (*kind == '*') {
            int32_t more = code[at + size];
            if (more < 0 || more > MOST_ARGUMENTS || more >= left - size) {
                return 0;
            }
            for (int32_t place = 1; place <= more; place++) {
                if (!is_operand(bounds, 'v', code[at + size + place])) {
                    return 0;
                }
            }
            size += more;
        } else if (!is_operand(bounds, *kind, code[at + size])) {
            return 0;
        }
    }
    if (code[at] == FIND_SCANNED || code[at] == GET_SCANNED) {
        int32_t site = code[at + (code[at] == FIND_SCANNED ? 4 : 5)], number = code[at + (code[at] == FIND_SCANNED ? 5 : 6)];
        if (number < 0 || number >= PyTuple_GET_SIZE(bounds->program->sites[site].wanted)) {
            return 0;
        }
    }
    bool needs_one = code[at] == CALL_METHOD;
    return (needs_one && code[at + 3] == 0) || (code[at] == TAKE && code[at + 3] < 1) ? 0 : size;
}

static bool ends_here(int32_t instruction)
{
    return instruction == RETURN || instruction == RAISE || instruction == JUMP;
}

/* Whether every jump leads to one of the places where an instruction starts. */
static bool jumps_are_right(const Program *program, const char *starts)
{
    for (Py_ssize_t at = 0; at < program->length;) {
        const char *kind = instructions[program->code[at]].operands;
        at++;
        for (; *kind; kind++, at++) {
            int32_t operand = program->code[at];
            if (*kind == '*') {
                at += operand;
            } else if (*kind == 'j' && (operand < 0 || operand >= program->length || !starts[operand])) {
                return false;
            }
        }
    }
    for (int32_t place = 0; place < program->handler_count; place++) {
        int32_t at = program->handlers[place].at;
        if (at < 0 || at >= program->length || !starts[at]) {
            return false;
        }
    }
    return true;
}

static int check(const Program *program)
{
    Bounds bounds = {program,          program->registers,  program->counters,
                     program->cursors, program->hint_count, (int32_t)PyTuple_GET_SIZE(program->constants)};
    char *starts = PyMem_Calloc((size_t)program->length + 1, 1);
    if (starts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int32_t last = -1;
    Py_ssize_t at = 0;
    while (at < program->length) {
        Py_ssize_t size = instruction_size(&bounds, at);
        if (size == 0) {
            break;
        }
        starts[at] = 1;
        last = program->code[at];
        at += size;
    }
    bool is_right = at == program->length && at > 0 && ends_here(last) && jumps_are_right(program, starts);
    PyMem_Free(starts);
    if (!is_right) {
        PyErr_Format(PyExc_ValueError, "no program: see the instruction at %zd", at);
        return -1;
    }
    return 0;
}

static int read_code(Program *program, PyObject *code)
{
    program->length = PyList_GET_SIZE(code);
    program->code = PyMem_Calloc((size_t)program->length + 1, sizeof(int32_t));
    if (program->code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0; place < program->length; place++) {
        long number = PyLong_AsLong(PyList_GET_ITEM(code, place));
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (number < INT32_MIN || number > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a number of the code is out of range");
            return -1;
        }
        program->code[place] = (int32_t)number;
    }
    return 0;
}

static int read_handlers(Program *program, PyObject *handlers)
{
    Py_ssize_t count = PyTuple_GET_SIZE(handlers);
    program->handlers = PyMem_Calloc((size_t)count + 1, sizeof(Handler));
    if (program->handlers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *type;
        int into, at;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(handlers, place), "Oii", &type, &into, &at)) {
            return -1;
        }
        if (!PyExceptionClass_Check(type) || into < 0 || into >= program->registers) {
            PyErr_SetString(PyExc_ValueError, "no handler");
            return -1;
        }
        program->handlers[place] = (Handler){Py_NewRef(type), into, at};
        program->handler_count++;
    }
    return 0;
}

static int read_sites(Program *program, PyObject *sites)
{
    Py_ssize_t count = PyTuple_GET_SIZE(sites);
    program->sites = PyMem_Calloc((size_t)count + 1, sizeof(Site));
    if (program->sites == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *wanted = PyTuple_GET_ITEM(sites, place);
        bool is_right = PyTuple_CheckExact(wanted);
        for (Py_ssize_t number = 0; is_right && number < PyTuple_GET_SIZE(wanted); number++) {
            is_right = PyUnicode_CheckExact(PyTuple_GET_ITEM(wanted, number));
        }
        if (!is_right) {
            PyErr_SetString(PyExc_ValueError, "a site wants a tuple of keys");
            return -1;
        }
        program->sites[place].wanted = Py_NewRef(wanted);
        program->site_count++;
    }
    return 0;
}

static int drop(PyObject *self)
{
    Program *program = (Program *)self;
    Py_CLEAR(program->constants);
    for (int32_t place = 0; place < program->handler_count; place++) {
        Py_CLEAR(program->handlers[place].type);
    }
    return 0;
}

static int visit_parts(PyObject *self, visitproc visit, void *arg)
{
    Program *program = (Program *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(program->constants);
    for (int32_t place = 0; place < program->handler_count; place++) {
        Py_VISIT(program->handlers[place].type);
    }
    return 0;
}

static void deallocate(PyObject *self)
{
    Program *program = (Program *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    drop(self);
    for (int32_t place = 0; program->hints != NULL && place < program->hint_count; place++) {
        Py_XDECREF(program->hints[place].key);
    }
    for (int32_t place = 0; place < program->site_count; place++) {
        Py_DECREF(program->sites[place].wanted);
        for (int number = 0; number < MOST_SHAPES; number++) {
            if (program->sites[place].shapes[number] != NULL) {
                free_shape(program->sites[place].shapes[number]);
            }
        }
    }
    PyMem_Free(program->code);
    PyMem_Free(program->sites);
    PyMem_Free(program->hints);
    PyMem_Free(program->handlers);
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(program_doc, "Program(code, constants, shape, handlers, sites): a function of `shape[0]` to `shape[1]` arguments.\n\n"
                          "`shape` goes on with how many registers, counters, cursors and hints there are; `handlers`\n"
                          "are an exception's type, the register that gets it and a place of the code each; `sites`\n"
                          "the keys that each wants. Raises ValueError for what is no program.");

static PyObject *new_program(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    PyObject *code, *constants, *handlers, *sites;
    int required, most, registers, counters, cursors, hints;
    if (!PyArg_ParseTuple(arguments, "O!O!(iiiiii)O!O!", &PyList_Type, &code, &PyTuple_Type, &constants, &required,
                          &most, &registers, &counters, &cursors, &hints, &PyTuple_Type, &handlers, &PyTuple_Type, &sites)) {
        return NULL;
    }
    if (required < 0 || required > most || most > registers || registers > MOST_REGISTERS || counters < 0 ||
        counters > MOST_REGISTERS || cursors < 0 || cursors > MOST_REGISTERS || hints < 0 ||
        hints > MOST_REGISTERS * 10) {
        PyErr_SetString(PyExc_ValueError, "no shape of a program");
        return NULL;
    }
    Program *made = (Program *)type->tp_alloc(type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->vectorcall = call;
    made->constants = Py_NewRef(constants);
    made->required = required;
    made->arguments = most;
    made->registers = registers;
    made->counters = counters;
    made->cursors = cursors;
    made->hint_count = hints;
    made->hints = PyMem_Calloc((size_t)hints + 1, sizeof(Hint));
    if (made->hints == NULL) {
        Py_DECREF(made);
        return PyErr_NoMemory();
    }
    for (int32_t place = 0; place < hints; place++) {
        made->hints[place].tries = TRIES;
    }
    if (read_code(made, code) || read_handlers(made, handlers) || read_sites(made, sites) || check(made)) {
        Py_DECREF(made);
        return NULL;
    }
    return (PyObject *)made;
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Program, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc, (void *)program_doc}, {Py_tp_new, new_program},       {Py_tp_dealloc, deallocate},
    {Py_tp_traverse, visit_parts},    {Py_tp_clear, drop},            {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},         {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "model._programs.Program",
    .basicsize = sizeof(Program),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = program_slots,
};

/* ---- the module ---- */

static int add_instructions(PyObject *module)
{
    PyObject *all = PyDict_New();
    if (all == NULL) {
        return -1;
    }
    for (int number = 0; number < HOW_MANY; number++) {
        PyObject *each = Py_BuildValue("(is)", number, instructions[number].operands);
        if (each == NULL || PyDict_SetItemString(all, instructions[number].name, each)) {
            Py_XDECREF(each);
            Py_DECREF(all);
            return -1;
        }
        Py_DECREF(each);
    }
    int failed = PyModule_AddObjectRef(module, "INSTRUCTIONS", all);
    Py_DECREF(all);
    return failed;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_programs", "Runs mapping functions; see native/programs.c.", -1, NULL, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__programs(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    PyObject *source = PyLong_FromUnsignedLong(SOURCE), *type = PyType_FromSpec(&program_spec);
    if (text_get == NULL) {
        text_get = PyUnicode_InternFromString("get");
    }
    if (source == NULL || type == NULL || text_get == NULL || PyModule_AddObjectRef(module, "SOURCE", source) ||
        PyModule_AddObjectRef(module, "Program", type) || add_instructions(module)) {
        Py_XDECREF(source);
        Py_XDECREF(type);
        Py_DECREF(module);
        return NULL;
    }
    Py_DECREF(source);
    Py_DECREF(type);
    return module;
}
