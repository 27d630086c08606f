/* frozenset(merge.codec.decode(...).identifiers): what a state can be found by. */
#pragma once

#include "reading.h"

PyDoc_STRVAR(identifiers_doc, "identifiers(data): the identifiers of a state, a frozenset; None for the reference to say.");

static PyObject *identifiers(PyObject *Py_UNUSED(module), PyObject *data)
{
    if (!are_bytes(&data, 1)) {
        return NULL;
    }
    struct named found[MOST_IDENTIFIERS];
    int size;
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data);
    /* They come last, and neither a brace nor a quotation mark stands in the places behind them: so the last
     * `},[],{` that parses to the end is where they begin, unless one stands in an identifier. */
    struct reader reader = {NULL, end};
    for (const char *at = end - 2; at - 5 > start + HEADER; at--) {
        if (!memcmp(at - 5, "},[],{", 6)) {
            reader.at = at;
            break;
        }
    }
    if (reader.at == NULL || !read_identifiers(&reader, MOST_ORIGINS, found, &size) || !take(&reader, ']') ||
        reader.at != end) {
        Py_RETURN_NONE;
    }
    PyObject *made = PyFrozenSet_New(NULL);
    for (int each = 0; made != NULL && each < size; each++) {
        PyObject *name = PyUnicode_DecodeUTF8(found[each].name.start, found[each].name.size, NULL);
        if (name == NULL || PySet_Add(made, name)) {
            Py_CLEAR(made);
        }
        Py_XDECREF(name);
    }
    if (made == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        /* The reference says what is damaged. */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return made;
}
