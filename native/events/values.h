/* Values of an event and their places. */
#pragma once

#include "../objects.h"

/* As in the references. */
#define LONGEST_NAME 200
#define LONGEST_ID 1024
#define MOST_IDENTIFIERS 16

/* The fields of idgraph.model.events.Event. */
enum { SOURCE_NAME, TYPE, ID, ORDINAL, POSITION, PAYLOAD, RAW, CARRIED, FIELDS };

/* Whether this is a tuple of texts, as paths.split gives: what a place is. */
static bool is_place(PyObject *keys)
{
    if (!PyTuple_CheckExact(keys)) {
        return false;
    }
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(keys); each++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(keys, each))) {
            return false;
        }
    }
    return true;
}

static bool is_place_or_none(PyObject *place)
{
    return place == Py_None || is_place(place);
}

/* idgraph.model.paths.value_at: the value at a place, None where there is none; NULL with an exception. */
static PyObject *value_at(PyObject *tree, PyObject *keys)
{
    PyObject *value = Py_NewRef(tree);
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(keys); each++) {
        PyObject *below = NULL;
        if (PyDict_CheckExact(value)) {
            below = Py_XNewRef(PyDict_GetItemWithError(value, PyTuple_GET_ITEM(keys, each)));
        }
        Py_DECREF(value);
        if (below == NULL) {
            return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        }
        value = below;
    }
    return value;
}

/* Whether a value is a text that is taken as it is: of one byte a character, so without halves of surrogate pairs. */
static bool is_plain_text(PyObject *value, Py_ssize_t longest)
{
    return PyUnicode_CheckExact(value) && PyUnicode_IS_READY(value) &&
           PyUnicode_KIND(value) == PyUnicode_1BYTE_KIND && PyUnicode_GET_LENGTH(value) > 0 &&
           PyUnicode_GET_LENGTH(value) <= longest;
}

static bool is_short_integer(PyObject *value)
{
    int overflow = 1;
    if (PyLong_CheckExact(value)) {
        PyLong_AsLongLongAndOverflow(value, &overflow);
    }
    return !overflow;
}

/* A plain text, or a short integer as text; NULL without an exception for the reference to say. */
static PyObject *text_of(PyObject *value, Py_ssize_t longest)
{
    if (is_plain_text(value, longest)) {
        return Py_NewRef(value);
    }
    return is_short_integer(value) ? PyObject_Str(value) : NULL;
}

/* An ordinal as it is, or what idgraph.model.stamps.read_ordinal makes of it. */
static PyObject *ordinal_of(PyObject *value, PyObject *read_ordinal)
{
    return is_short_integer(value) ? Py_NewRef(value) : PyObject_CallOneArg(read_ordinal, value);
}

static void drop_all(PyObject **values, int size)
{
    for (int each = 0; each < size; each++) {
        Py_CLEAR(values[each]);
    }
}
