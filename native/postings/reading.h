/* Blocks of postings, read: no byte is trusted. */
#pragma once

#include "../objects.h"
#include "../output.h"

#include <stdint.h>

struct text {
    const unsigned char *start;
    size_t size;
};

/* `end` is behind the last byte. */
struct reader {
    const unsigned char *at, *end;
};

static bool take_number(struct reader *reader, uint64_t *number)
{
    *number = 0;
    for (int shift = 0; reader->at < reader->end && shift < 56; shift += 7) {
        unsigned char each = *reader->at++;
        *number |= (uint64_t)(each & 127) << shift;
        if (each < 128) {
            return true;
        }
    }
    return false;
}

static int compare_texts(const struct text *one, const struct text *other)
{
    int order = memcmp(one->start, other->start, one->size < other->size ? one->size : other->size);
    return order ? order : (one->size > other->size) - (one->size < other->size);
}

/* Eight bytes of a text from `start` on as a number, zeros behind its end. */
static uint64_t number_from(const struct text *text, size_t start)
{
    unsigned char bytes[8] = {0};
    if (text->size >= start + sizeof bytes) {
        memcpy(bytes, text->start + start, sizeof bytes);
    }
    else if (text->size > start) {
        memcpy(bytes, text->start + start, text->size - start);
    }
    uint64_t number = 0;
    for (size_t each = 0; each < sizeof bytes; each++) {
        number = number << 8 | bytes[each];
    }
    return number;
}

/* One entry after another of a block. `token` is put together of what it shares with the one before. */
struct cursor {
    struct reader reader;
    struct output token;
    uint64_t documents;
};

static struct text token_of(const struct cursor *cursor)
{
    return (struct text){(unsigned char *)cursor->token.bytes, cursor->token.size};
}

/* The next entry, up to its documents: 1, 0 at the end of the block, -1 with an exception. */
static int next_entry(struct cursor *cursor)
{
    uint64_t shared, rest;
    struct reader *reader = &cursor->reader;
    if (reader->at == reader->end) {
        return 0;
    }
    if (!take_number(reader, &shared) || !take_number(reader, &rest) || shared > cursor->token.size ||
        rest > (uint64_t)(reader->end - reader->at)) {
        PyErr_SetString(PyExc_ValueError, "a damaged block of postings");
        return -1;
    }
    cursor->token.size = (size_t)shared;
    if (put(&cursor->token, reader->at, (size_t)rest)) {
        return -1;
    }
    reader->at += rest;
    /* Each document is a byte at least. */
    if (!take_number(reader, &cursor->documents) || cursor->documents > (uint64_t)(reader->end - reader->at)) {
        PyErr_SetString(PyExc_ValueError, "a damaged block of postings");
        return -1;
    }
    return 1;
}

static int skip_documents(struct cursor *cursor)
{
    struct reader *reader = &cursor->reader;
    for (uint64_t each = 0; each < cursor->documents; reader->at++) {
        if (reader->at == reader->end) {
            PyErr_SetString(PyExc_ValueError, "a damaged block of postings");
            return -1;
        }
        each += *reader->at < 128;
    }
    return 0;
}
