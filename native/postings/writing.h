/* sinks.sqlite.index.blocks._blocks: entries become blocks. */
#pragma once

#include "reading.h"

/* So many bytes a number takes at most. */
#define NUMBER_BYTES 10

/* Seven bits a byte, the lowest first; the last byte has no high bit. Gives where it ends. */
static unsigned char *written_number(unsigned char *end, uint64_t number)
{
    for (; number > 127; number >>= 7) {
        *end++ = (unsigned char)(number | 128);
    }
    *end++ = (unsigned char)number;
    return end;
}

static int put_number(struct output *output, uint64_t number)
{
    unsigned char *end = (unsigned char *)more(output, NUMBER_BYTES);
    if (end == NULL) {
        return -1;
    }
    output->size += (size_t)(written_number(end, number) - end);
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

/* How many of so many bytes both begin with. */
static size_t shared_bytes(const unsigned char *one, const unsigned char *other, size_t most)
{
    size_t shared = 0;
    uint64_t a, b;
    for (; most - shared >= sizeof a; shared += sizeof a) {
        memcpy(&a, one + shared, sizeof a);
        memcpy(&b, other + shared, sizeof b);
        if (a != b) {
            break;
        }
    }
    while (shared < most && one[shared] == other[shared]) {
        shared++;
    }
    return shared;
}

/* The bytes of an entry, for which room is made once. */
static int put_entry(struct output *block, size_t shared, const struct text *rest, uint64_t size,
                     const struct output *documents)
{
    unsigned char *start = (unsigned char *)more(block, 3 * NUMBER_BYTES + rest->size + documents->size);
    if (start == NULL) {
        return -1;
    }
    unsigned char *end = written_number(written_number(start, shared), rest->size);
    memcpy(end, rest->start, rest->size);
    end = written_number(end + rest->size, size);
    memcpy(end, documents->bytes, documents->size);
    block->size += (size_t)(end + documents->size - start);
    return 0;
}

/* Tokens come in their order; `documents` are the numbers of so many, written as they stand in a block. */
static int write_entry(struct writer *writer, const struct text *token, uint64_t size, const struct output *documents)
{
    size_t most = token->size < writer->last.size ? token->size : writer->last.size;
    size_t shared = most ? shared_bytes(token->start, (unsigned char *)writer->last.bytes, most) : 0;
    size_t rest = token->size - shared;
    size_t whole = size_of_number(shared) + size_of_number(rest) + rest + size_of_number(size) + documents->size;
    if (writer->block.size && writer->block.size + whole > BLOCK_BYTES) {
        if (finish_block(writer)) {
            return -1;
        }
        shared = 0;
    }
    if (!writer->block.size && put(&writer->first, token->start, token->size)) {
        return -1;
    }
    struct text end = {token->start + shared, token->size - shared};
    writer->last.size = shared;
    return put_entry(&writer->block, shared, &end, size, documents) || put(&writer->last, end.start, end.size) ? -1 : 0;
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
