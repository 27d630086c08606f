/* sinks.sqlite.index.tokens.Tokenizer.tokens: the packed tokens of fields. */
#pragma once

#include "../tokens.h"
#include "reading.h"

/* The positive number that a double holds exactly, 0 for any other value. */
static double positive(PyObject *value)
{
    double number = 0.0;
    if (PyFloat_CheckExact(value)) {
        number = PyFloat_AS_DOUBLE(value);
    }
    else if (PyLong_CheckExact(value)) {
        int overflow;
        long long whole = PyLong_AsLongLongAndOverflow(value, &overflow);
        number = overflow ? 0.0 : (double)whole;
    }
    return number > 0.0 && number < EXACT ? number : 0.0;
}

/* Tokens that need no call: 1, 0 for those that the reference must say, or -1 with an exception. */
static int put_known(struct output *output, PyObject *path, PyObject *value, PyObject *paths)
{
    struct beginning begin[PARTS];
    PyObject *parts = PyDict_GetItemWithError(paths, path);
    if (parts == NULL || !read_beginnings(parts, begin)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (PyUnicode_CheckExact(value)) {
        if (!PyUnicode_IS_READY(value) || !PyUnicode_IS_ASCII(value) ||
            PyUnicode_GET_LENGTH(value) > LONGEST_TEXT) {
            return 0;
        }
        return put_text(output, PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value), begin) ? -1 : 1;
    }
    if (PyBool_Check(value)) {
        return put_boolean(output, value == Py_True, begin) ? -1 : 1;
    }
    double number = positive(value);
    if (number == 0.0) {
        return 0;
    }
    return put_sortable(output, number, begin) ? -1 : 1;
}

PyDoc_STRVAR(tokens_doc, "tokens(fields, paths, odd): the packed tokens of all fields; of others than short ASCII texts and\n"
                         "plain numbers as odd(path, value) says.");

static PyObject *tokens(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 3) || !check_dict(arguments[0]) || !check_dict(arguments[1])) {
        return NULL;
    }
    struct output output = {NULL, 0, 0};
    PyObject *path, *value, *made = NULL;
    Py_ssize_t place = 0, size = PyDict_GET_SIZE(arguments[0]);
    int failed = more(&output, 1024) == NULL;
    while (!failed && PyDict_Next(arguments[0], &place, &path, &value)) {
        Py_INCREF(path);
        Py_INCREF(value);
        int done = put_known(&output, path, value, arguments[1]);
        failed = done < 0 ||
                 (!done && put_packed(&output, PyObject_CallFunctionObjArgs(arguments[2], path, value, NULL)));
        Py_DECREF(path);
        Py_DECREF(value);
        failed = failed || !still_as_long(arguments[0], size);
    }
    if (!failed) {
        made = PyBytes_FromStringAndSize(output.bytes, (Py_ssize_t)output.size);
    }
    PyMem_Free(output.bytes);
    return made;
}
