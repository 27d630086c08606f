/* What instructions do: values, cursors over containers, exceptions. */
#pragma once

#include "program.h"

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
static PyObject *item(PyObject *owner, PyObject *key)
{
    if (PyDict_CheckExact(owner)) {
        PyObject *found = PyDict_GetItemWithError(owner, key);
        if (found != NULL) {
            return Py_NewRef(found);
        }
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    return PyObject_GetItem(owner, key);
}

/* `owner[key]`, where the owner is no dict: 1 with a new reference, 0 if there is none, -1 with an exception. */
static int find_elsewhere(PyObject *owner, PyObject *key, PyObject **found)
{
    int is_in = PySequence_Contains(owner, key);
    if (is_in <= 0) {
        return is_in;
    }
    *found = PyObject_GetItem(owner, key);
    return *found == NULL ? -1 : 1;
}

static PyObject *text_get;

/* `owner.get(key, missing)`; without `missing` (NULL) None. A new reference. */
static PyObject *get(PyObject *owner, PyObject *key, PyObject *missing)
{
    if (LIKELY(PyDict_CheckExact(owner))) {
        PyObject *found = PyDict_GetItemWithError(owner, key);
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
    if (UNLIKELY(!PyIter_Check(over))) {
        /* A dict whose items are gone over, which no program of ours asks for anything else. */
        PyErr_SetString(PyExc_TypeError, "a dict's items are taken two at once");
        return NULL;
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

/* Where the code continues after an exception, -1 if nowhere. */
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
