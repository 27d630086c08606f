/* Canonical JSON, as idgraph.model.canonical writes it: values, and keys in their order. */
#ifndef IDGRAPH_JSON_H
#define IDGRAPH_JSON_H

#include "output.h"

#include <stdbool.h>

static inline int put_number(struct output *output, long long number)
{
    char digits[24], *end = digits + sizeof digits, *start = end;
    unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
    do {
        *--start = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) {
        *--start = '-';
    }
    return put(output, start, (size_t)(end - start));
}

/* Whether JSON holds this byte of a text as it is. DEL is left to the reference too. */
static inline bool stands(unsigned char byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f;
}

/* A text in quotes: 1, 0 for one with something to escape, or -1 with an exception. */
static inline int put_text(struct output *output, const char *text, Py_ssize_t size)
{
    unsigned char bad = 0;
    for (Py_ssize_t place = 0; place < size; place++) {
        bad |= !stands((unsigned char)text[place]);
    }
    if (bad) {
        return 0;
    }
    char *end = more(output, (size_t)size + 2);
    if (end == NULL) {
        return -1;
    }
    end[0] = '"';
    memcpy(end + 1, text, (size_t)size);
    end[size + 1] = '"';
    output->size += (size_t)size + 2;
    return 1;
}

/* What `encode`, merge.codec's own encoder, makes of a value. */
static inline int put_encoded(struct output *output, PyObject *value, PyObject *encode)
{
    PyObject *encoded = PyObject_CallOneArg(encode, value);
    if (encoded == NULL) {
        return -1;
    }
    int failed = -1;
    if (PyBytes_CheckExact(encoded)) {
        failed = put(output, PyBytes_AS_STRING(encoded), (size_t)PyBytes_GET_SIZE(encoded));
    }
    else {
        PyErr_SetString(PyExc_TypeError, "an encoder that gives no bytes");
    }
    Py_DECREF(encoded);
    return failed;
}

static inline int put_value(struct output *output, PyObject *value, PyObject *encode)
{
    if (PyUnicode_CheckExact(value) && PyUnicode_IS_READY(value) && PyUnicode_IS_ASCII(value)) {
        int done = put_text(output, PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value));
        if (done) {
            return done < 0 ? -1 : 0;
        }
    }
    else if (PyLong_CheckExact(value)) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (!overflow) {
            return put_number(output, number);
        }
    }
    else if (value == Py_None) {
        return put(output, "null", 4);
    }
    else if (value == Py_True) {
        return put(output, "true", 4);
    }
    else if (value == Py_False) {
        return put(output, "false", 5);
    }
    return put_encoded(output, value, encode);
}

/* One entry of a dict, its key as UTF-8, which lives as long as the key. */
struct entry {
    const char *text;
    Py_ssize_t size;
    PyObject *key, *value;
};

static inline int in_order(const void *one, const void *other)
{
    const struct entry *a = one, *b = other;
    Py_ssize_t shorter = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->text, b->text, (size_t)shorter);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static inline int put_key(struct output *output, const struct entry *entry, char before, PyObject *encode)
{
    if (put_character(output, before)) {
        return -1;
    }
    int done = put_text(output, entry->text, entry->size);
    if (done < 0 || (!done && put_encoded(output, entry->key, encode))) {
        return -1;
    }
    return put_character(output, ':');
}

/* An origin as merge.codec has it: an array of the stamp's fields and the spec's. */
static inline int put_origin(struct output *output, PyObject *origin, PyObject *encode)
{
    char before = '[';
    for (int part = 0; part < 2; part++) {
        PyObject *fields = PyTuple_GET_ITEM(origin, part);
        if (!PyTuple_Check(fields)) {
            PyErr_SetString(PyExc_TypeError, "an origin of something else");
            return -1;
        }
        for (Py_ssize_t field = 0; field < PyTuple_GET_SIZE(fields); field++) {
            if (put_character(output, before) ||
                put_value(output, PyTuple_GET_ITEM(fields, field), encode)) {
                return -1;
            }
            before = ',';
        }
    }
    return put_character(output, ']');
}

#endif
