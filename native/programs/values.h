/* What instructions ask of values: the quick answer for exact types, CPython's own for others. */
#pragma once

#include "keys.h"

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
