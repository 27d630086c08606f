/* The values of an event and their places, and the envelope that they are read from. */
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

#define SAID (ORDINAL + 1)
enum { SAID_PLACES, CONSTANTS, PAYLOAD_PLACE, DECODE, EVENT_TYPE, READ_ORDINAL, READER_REFERENCE, READER_PARTS };

static PyObject *said(PyObject *parts, int field, PyObject *body)
{
    PyObject *place = PyTuple_GET_ITEM(PyTuple_GET_ITEM(parts, SAID_PLACES), field);
    if (place == Py_None) {
        return Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(parts, CONSTANTS), field));
    }
    return value_at(body, place);
}

/* Reads the fields of the common form: 1, 0 for the reference to say, -1 with an exception. */
static int read_fields(PyObject *parts, PyObject *body, PyObject **fields)
{
    for (int field = SOURCE_NAME; field < SAID; field++) {
        if ((fields[field] = said(parts, field, body)) == NULL) {
            return -1;
        }
    }
    if (!is_plain_text(fields[SOURCE_NAME], LONGEST_NAME) || !is_plain_text(fields[TYPE], LONGEST_NAME)) {
        return 0;
    }
    if (fields[ID] != Py_None) {
        Py_SETREF(fields[ID], text_of(fields[ID], PY_SSIZE_T_MAX));
        if (fields[ID] == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
    }
    fields[PAYLOAD] = value_at(body, PyTuple_GET_ITEM(parts, PAYLOAD_PLACE));
    if (fields[PAYLOAD] == NULL) {
        return -1;
    }
    if (!PyDict_CheckExact(fields[PAYLOAD])) {
        return 0;
    }
    if (fields[ORDINAL] != Py_None) {
        Py_SETREF(fields[ORDINAL], ordinal_of(fields[ORDINAL], PyTuple_GET_ITEM(parts, READ_ORDINAL)));
    }
    return fields[ORDINAL] == NULL ? -1 : 1;
}

/* The event, NULL without an exception for the reference to say. */
static PyObject *event_of(PyObject *parts, PyObject *record)
{
    PyObject *body = PyObject_CallOneArg(PyTuple_GET_ITEM(parts, DECODE), PyTuple_GET_ITEM(record, 2));
    if (body == NULL) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
        }
        return NULL;
    }
    PyObject *fields[FIELDS] = {NULL}, *event = NULL;
    if (PyDict_CheckExact(body) && read_fields(parts, body, fields) == 1) {
        fields[POSITION] = Py_NewRef(PyTuple_GET_ITEM(record, 1));
        fields[RAW] = Py_NewRef(PyTuple_GET_ITEM(record, 2));
        fields[CARRIED] = Py_NewRef(Py_None);
        event = new_tuple((PyTypeObject *)PyTuple_GET_ITEM(parts, EVENT_TYPE), fields, FIELDS);
    }
    drop_all(fields, FIELDS);
    Py_DECREF(body);
    return event;
}

static PyObject *read_event(PyObject *parts, PyObject *record)
{
    PyObject *event = NULL;
    if (PyTuple_Check(record) && PyTuple_GET_SIZE(record) == 3) {
        event = event_of(parts, record);
    }
    if (event == NULL && !PyErr_Occurred()) {
        return PyObject_CallOneArg(PyTuple_GET_ITEM(parts, READER_REFERENCE), record);
    }
    return event;
}

static PyMethodDef reader_method = {"read", read_event, METH_O, "read(record): its event."};

PyDoc_STRVAR(reader_doc, "reader(places, constants, payload, decode, Event, read_ordinal, reference): a function that reads\n"
                         "an event from a record. `places` are the tuples of keys of source, type, id and ordinal,\n"
                         "None for one that is the same for every record: it stands in `constants`. `payload` is a\n"
                         "tuple of keys.");

static PyObject *reader(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, READER_PARTS)) {
        return NULL;
    }
    bool are_fine = is_place(arguments[PAYLOAD_PLACE]) && is_named_tuple(arguments[EVENT_TYPE]);
    for (int each = SAID_PLACES; each <= CONSTANTS; each++) {
        are_fine = are_fine && PyTuple_CheckExact(arguments[each]) && PyTuple_GET_SIZE(arguments[each]) == SAID;
    }
    for (int field = SOURCE_NAME; are_fine && field < SAID; field++) {
        are_fine = is_place_or_none(PyTuple_GET_ITEM(arguments[SAID_PLACES], field));
    }
    if (!are_fine) {
        PyErr_SetString(PyExc_TypeError, "places, constants and a named tuple are needed");
        return NULL;
    }
    return with_parts(&reader_method, arguments, READER_PARTS);
}
