/* frozenset(merge.codec.decode(...).identifiers): what a state can be found by. */
#pragma once

#include "reading.h"

PyDoc_STRVAR(identifiers_doc, "identifiers(data): the identifiers of a state, a tuple; None for the twin to say.");

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
    PyObject *made = PyTuple_New(size);
    for (int each = 0; made != NULL && each < size; each++) {
        const struct text *name = &found[each].name;
        PyObject *item = PyUnicode_DecodeUTF8(name->start, name->size, NULL);
        if (item == NULL) {
            Py_CLEAR(made);
            if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
                /* The twin says what is damaged. */
                PyErr_Clear();
                Py_RETURN_NONE;
            }
            break;
        }
        PyTuple_SET_ITEM(made, each, item);
    }
    return made;
}
