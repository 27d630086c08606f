/* sinks.sqlite_index_blocks._blocks: entries become blocks. */
#pragma once

#include "reading.h"

/* Seven bits a byte, the lowest first; the last byte has no high bit. */
static int put_number(struct output *output, uint64_t number)
{
    unsigned char *end = (unsigned char *)more(output, 10);
    if (end == NULL) {
        return -1;
    }
    for (; number > 127; number >>= 7) {
        *end++ = (unsigned char)(number | 128);
    }
    *end++ = (unsigned char)number;
    output->size = (size_t)((char *)end - output->bytes);
    return 0;
}

#define BLOCK_BYTES 7900

/* `last` is the token written last; `made` are the blocks that are full. */
struct writer {
    PyObject *made;
    struct output block, first, last;
};

static int finish_block(struct writer *writer)
{
    if (!writer->block.size) {
        return 0;
    }
    PyObject *pair = Py_BuildValue("(y#y#)", writer->first.bytes, (Py_ssize_t)writer->first.size,
                                   writer->block.bytes, (Py_ssize_t)writer->block.size);
    int failed = pair == NULL || PyList_Append(writer->made, pair);
    Py_XDECREF(pair);
    writer->block.size = writer->first.size = writer->last.size = 0;
    return failed ? -1 : 0;
}

static size_t size_of_number(uint64_t number)
{
    size_t size = 1;
    for (; number > 127; number >>= 7) {
        size++;
    }
    return size;
}

/* Tokens come in their order; `documents` are the numbers of so many, written as they stand in a block. */
static int write_entry(struct writer *writer, const struct text *token, uint64_t size, const struct output *documents)
{
    size_t shared = 0, most = token->size < writer->last.size ? token->size : writer->last.size;
    while (shared < most && token->start[shared] == (unsigned char)writer->last.bytes[shared]) {
        shared++;
    }
    size_t rest = token->size - shared;
    size_t whole = size_of_number(shared) + size_of_number(rest) + rest + size_of_number(size) + documents->size;
    if (writer->block.size && writer->block.size + whole > BLOCK_BYTES) {
        if (finish_block(writer)) {
            return -1;
        }
        shared = 0;
        rest = token->size;
    }
    if (!writer->block.size && put(&writer->first, token->start, token->size)) {
        return -1;
    }
    writer->last.size = shared;
    return put_number(&writer->block, shared) || put_number(&writer->block, rest) ||
                   put(&writer->block, token->start + shared, rest) || put_number(&writer->block, size) ||
                   put(&writer->block, documents->bytes, documents->size) ||
                   put(&writer->last, token->start + shared, rest)
               ? -1
               : 0;
}

/* Its blocks, or NULL with an exception; frees what it holds. */
static PyObject *finished(struct writer *writer, bool failed)
{
    if (failed || finish_block(writer)) {
        Py_CLEAR(writer->made);
    }
    PyMem_Free(writer->block.bytes);
    PyMem_Free(writer->first.bytes);
    PyMem_Free(writer->last.bytes);
    return writer->made;
}
