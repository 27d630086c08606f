/* sinks.sqlite.index.blocks.find: the documents of some tokens of a block. */
#pragma once

#include "reading.h"

static int append_documents(struct cursor *cursor, uint64_t document, PyObject *found)
{
    uint64_t step;
    for (uint64_t each = 0; each < cursor->documents; each++) {
        if (!take_number(&cursor->reader, &step)) {
            PyErr_SetString(PyExc_ValueError, "a damaged block of postings");
            return -1;
        }
        document += step;
        PyObject *number = PyLong_FromUnsignedLongLong(document);
        int failed = number == NULL || PyList_Append(found, number);
        Py_XDECREF(number);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(find_doc, "find(block, lower, upper, first): the documents of a block's tokens from `lower` on and before\n"
                       "`upper`, each plus `first`; one may come several times.");

static PyObject *find(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 4) || !are_bytes(arguments, 3)) {
        return NULL;
    }
    unsigned long long first = PyLong_AsUnsignedLongLong(arguments[3]);
    if (first == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    struct text parts[3];
    for (int each = 0; each < 3; each++) {
        parts[each].start = (unsigned char *)PyBytes_AS_STRING(arguments[each]);
        parts[each].size = (size_t)PyBytes_GET_SIZE(arguments[each]);
    }
    struct cursor cursor = {{parts[0].start, parts[0].start + parts[0].size}, {0}, 0};
    PyObject *found = PyList_New(0);
    int went = found == NULL ? -1 : 1;
    while (went == 1 && (went = next_entry(&cursor)) == 1) {
        struct text token = token_of(&cursor);
        if (compare_texts(&token, &parts[2]) >= 0) {
            break;
        }
        bool is_asked = compare_texts(&token, &parts[1]) >= 0;
        went = (is_asked ? append_documents(&cursor, first, found) : skip_documents(&cursor)) ? -1 : 1;
    }
    if (went < 0) {
        Py_CLEAR(found);
    }
    PyMem_Free(cursor.token.bytes);
    return found;
}
