/* Going over lists, dicts and rows. */
#pragma once

#include "program.h"

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
