/* sinks.sqlite.index.blocks.build: tokens of documents become blocks. */
#pragma once

#include "gathering.h"
#include "writing.h"

#include <stdlib.h>

/* Where a token stands among all in their order: `head` and `next` are its first 16 bytes as numbers. */
struct place {
    uint64_t head, next;
    const struct token *token;
};

static int compare_places(const void *one, const void *other)
{
    const struct place *a = one, *b = other;
    if (a->head != b->head) {
        return a->head < b->head ? -1 : 1;
    }
    if (a->next != b->next) {
        return a->next < b->next ? -1 : 1;
    }
    return compare_texts(&a->token->text, &b->token->text);
}

static struct place place_of(const struct token *token)
{
    return (struct place){number_from(&token->text, 0), number_from(&token->text, 8), token};
}

/* Puts tokens in the order of their heads, a byte at a time from the last one on: those of one head stay in theirs. There
 * are as many passes back as forth. */
static void order_heads(struct place *places, struct place *spare, uint32_t size)
{
    uint32_t counts[sizeof places->head][256] = {{0}};
    for (uint32_t each = 0; each < size; each++) {
        for (size_t byte = 0; byte < sizeof places->head; byte++) {
            counts[byte][places[each].head >> 8 * byte & 255]++;
        }
    }
    for (size_t byte = 0; byte < sizeof places->head; byte++) {
        uint32_t *next = counts[byte], start = 0;
        for (int value = 0; value < 256; value++) {
            uint32_t count = next[value];
            next[value] = start;
            start += count;
        }
        for (uint32_t each = 0; each < size; each++) {
            spare[next[places[each].head >> 8 * byte & 255]++] = places[each];
        }
        struct place *ordered = spare;
        spare = places;
        places = ordered;
    }
}

/* All tokens in their order, to be freed; NULL with an exception. */
static struct place *sorted(const struct gathered *all)
{
    uint32_t size = all->tokens_size, end;
    struct place *places = PyMem_Malloc(((size_t)size + 1) * sizeof *places);
    struct place *spare = PyMem_Malloc(((size_t)size + 1) * sizeof *spare);
    if (places == NULL || spare == NULL) {
        PyMem_Free(places);
        PyMem_Free(spare);
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t each = 0; each < size; each++) {
        places[each] = place_of(&all->tokens[each]);
    }
    order_heads(places, spare, size);
    PyMem_Free(spare);
    for (uint32_t start = 0; start < size; start = end) {
        for (end = start + 1; end < size && places[end].head == places[start].head; end++) {
        }
        if (end - start > 1) {
            qsort(&places[start], end - start, sizeof *places, compare_places);
        }
    }
    return places;
}

/* The documents of each token, those of one behind those of the one before it, to be freed; NULL with an exception. */
static uint32_t *documents_in_order(const struct gathered *all, const struct place *places)
{
    uint32_t *documents = PyMem_Malloc((all->postings_size + 1) * sizeof *documents);
    uint32_t *next = PyMem_Malloc((all->tokens_size + 1) * sizeof *next);
    if (documents == NULL || next == NULL) {
        PyMem_Free(documents);
        PyMem_Free(next);
        PyErr_NoMemory();
        return NULL;
    }
    uint32_t start = 0;
    for (uint32_t each = 0; each < all->tokens_size; each++) {
        next[places[each].token - all->tokens] = start;
        start += places[each].token->documents;
    }
    for (uint32_t each = 0; each < all->postings_size; each++) {
        documents[next[all->postings[each].token]++] = all->postings[each].document;
    }
    PyMem_Free(next);
    return documents;
}

static PyObject *blocks_of(struct gathered *all)
{
    struct writer writer = {PyList_New(0), {0}, {0}, {0}};
    struct output written = {0};
    struct place *places = sorted(all);
    uint32_t *documents = places == NULL ? NULL : documents_in_order(all, places);
    const uint32_t *document = documents;
    bool failed = writer.made == NULL || documents == NULL;
    for (uint32_t each = 0; !failed && each < all->tokens_size; each++) {
        const struct token *token = places[each].token;
        uint32_t before = 0;
        if (each + 16 < all->tokens_size) {
            FETCH(places[each + 16].token);
            FETCH(places[each + 8].token->text.start);
        }
        written.size = 0;
        for (uint32_t left = token->documents; !failed && left; left--, document++) {
            failed = put_number(&written, *document - before);
            before = *document;
        }
        failed = failed || write_entry(&writer, &token->text, token->documents, &written);
    }
    PyMem_Free(written.bytes);
    PyMem_Free(documents);
    PyMem_Free(places);
    return finished(&writer, failed);
}

PyDoc_STRVAR(build_doc, "build(documents): the blocks of some documents' packed tokens, pairs of first token and block.");

static PyObject *build(PyObject *Py_UNUSED(module), PyObject *documents)
{
    /* A tuple of its own, that stays as it is. */
    PyObject *kept = PySequence_Tuple(documents);
    if (kept == NULL) {
        return NULL;
    }
    struct gathered all = {0};
    bool failed = false;
    for (Py_ssize_t each = 0; !failed && each < PyTuple_GET_SIZE(kept); each++) {
        PyObject *packed = PyTuple_GET_ITEM(kept, each);
        failed = !are_bytes(&packed, 1) || gather_document(&all, packed, (uint32_t)each);
    }
    PyObject *made = failed ? NULL : blocks_of(&all);
    PyMem_Free(all.tokens);
    PyMem_Free(all.postings);
    PyMem_Free(all.slots);
    Py_DECREF(kept);
    return made;
}
