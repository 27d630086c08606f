/* sinks.sqlite.index.blocks.merge: blocks of several segments become those of one. */
#pragma once

#include "writing.h"

/* The blocks of one segment, a tuple, read one after another. `head` is its token's first eight bytes as a number, by
 * which most are told apart. `alive` has a byte for each of its documents. */
struct part {
    uint64_t head;
    PyObject *blocks;
    Py_ssize_t next_block;
    uint64_t shift;
    struct text alive;
    struct cursor cursor;
    bool is_at_end;
};

/* To the next entry, in the next block if need be. */
static int advance(struct part *part)
{
    int found;
    while (!(found = next_entry(&part->cursor))) {
        if (part->next_block == PyTuple_GET_SIZE(part->blocks)) {
            part->is_at_end = true;
            return 0;
        }
        PyObject *block = PyTuple_GET_ITEM(part->blocks, part->next_block++);
        if (!are_bytes(&block, 1)) {
            return -1;
        }
        const unsigned char *start = (unsigned char *)PyBytes_AS_STRING(block);
        part->cursor.reader = (struct reader){start, start + PyBytes_GET_SIZE(block)};
        part->cursor.token.size = 0;
    }
    if (found < 0) {
        return -1;
    }
    struct text token = token_of(&part->cursor);
    part->head = number_from(&token, 0);
    return 0;
}

/* In the order of their tokens. */
static int compare_parts(const struct part *one, const struct part *other)
{
    if (one->head != other->head) {
        return one->head < other->head ? -1 : 1;
    }
    struct text a = token_of(&one->cursor), b = token_of(&other->cursor);
    return compare_texts(&a, &b);
}

/* What is merged under one token. */
struct merged {
    struct output token, documents;
    uint64_t size, before;
};

static int merge_documents(struct part *part, struct merged *merged)
{
    uint64_t document = 0, step;
    for (uint64_t each = 0; each < part->cursor.documents; each++) {
        if (!take_number(&part->cursor.reader, &step) || (each && !step) || step > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a damaged block of postings");
            return -1;
        }
        document += step;
        if (part->alive.start != NULL && (document >= part->alive.size || !part->alive.start[document])) {
            continue;
        }
        uint64_t number = part->shift + document;
        if (merged->size && number <= merged->before) {
            PyErr_SetString(PyExc_ValueError, "a damaged block of postings");
            return -1;
        }
        if (put_number(&merged->documents, number - merged->before)) {
            return -1;
        }
        merged->before = number;
        merged->size++;
    }
    return 0;
}

static struct part *least(struct part *parts, Py_ssize_t size)
{
    struct part *found = NULL;
    for (Py_ssize_t each = 0; each < size; each++) {
        if (parts[each].is_at_end) {
            continue;
        }
        if (found == NULL || compare_parts(&parts[each], found) < 0) {
            found = &parts[each];
        }
    }
    return found;
}

/* `head` is that of the token. */
static int merge_entry(struct part *parts, Py_ssize_t size, struct merged *merged, uint64_t head)
{
    struct text token = {(unsigned char *)merged->token.bytes, merged->token.size};
    for (Py_ssize_t each = 0; each < size; each++) {
        struct text other = token_of(&parts[each].cursor);
        if (parts[each].head == head && !parts[each].is_at_end && !compare_texts(&token, &other) &&
            (merge_documents(&parts[each], merged) || advance(&parts[each]))) {
            return -1;
        }
    }
    return 0;
}

static PyObject *merged_blocks(struct part *parts, Py_ssize_t size)
{
    struct writer writer = {PyList_New(0), {0}, {0}, {0}};
    struct merged merged = {0};
    bool failed = writer.made == NULL;
    struct part *part;
    for (Py_ssize_t each = 0; !failed && each < size; each++) {
        failed = advance(&parts[each]);
    }
    while (!failed && (part = least(parts, size)) != NULL) {
        merged.token.size = merged.documents.size = 0;
        merged.size = merged.before = 0;
        failed = put(&merged.token, part->cursor.token.bytes, part->cursor.token.size) ||
                 merge_entry(parts, size, &merged, part->head);
        struct text token = {(unsigned char *)merged.token.bytes, merged.token.size};
        failed = failed || (merged.size && write_entry(&writer, &token, merged.size, &merged.documents));
    }
    PyMem_Free(merged.token.bytes);
    PyMem_Free(merged.documents.bytes);
    return finished(&writer, failed);
}

static int read_part(PyObject *given, struct part *part)
{
    PyObject *alive;
    unsigned long long shift;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a tuple is needed");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "O!KO", &PyTuple_Type, &part->blocks, &shift, &alive)) {
        return -1;
    }
    part->shift = shift;
    if (alive != Py_None) {
        if (!are_bytes(&alive, 1)) {
            return -1;
        }
        part->alive = (struct text){(unsigned char *)PyBytes_AS_STRING(alive), (size_t)PyBytes_GET_SIZE(alive)};
    }
    return 0;
}

PyDoc_STRVAR(merge_doc, "merge(parts): the blocks of several segments as those of one. A part is a tuple of its blocks, what\n"
                        "is added to its documents, and a byte for each that is not 0 if it is to stay, or None.");

static PyObject *merge(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (!PyTuple_CheckExact(given)) {
        PyErr_SetString(PyExc_TypeError, "a tuple is needed");
        return NULL;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(given);
    struct part *parts = PyMem_Calloc((size_t)size + 1, sizeof *parts);
    if (parts == NULL) {
        return PyErr_NoMemory();
    }
    bool failed = false;
    for (Py_ssize_t each = 0; !failed && each < size; each++) {
        failed = read_part(PyTuple_GET_ITEM(given, each), &parts[each]);
    }
    PyObject *made = failed ? NULL : merged_blocks(parts, size);
    for (Py_ssize_t each = 0; each < size; each++) {
        PyMem_Free(parts[each].cursor.token.bytes);
    }
    PyMem_Free(parts);
    return made;
}
