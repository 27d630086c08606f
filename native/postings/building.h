/* sinks.sqlite_index_blocks.build: tokens of documents become blocks. */
#pragma once

#include "gathering.h"
#include "writing.h"

#include <stdlib.h>

/* Where a token stands among all in their order: `head` and `next` are its first 16 bytes as numbers. */
struct place {
    uint64_t head, next;
    const struct token *token;
};

/* Eight bytes of a text from `start` on as a number, zeros behind its end. */
static uint64_t number_from(const struct text *text, size_t start)
{
    uint64_t number = 0;
    if (text->size >= start + 8) {
        for (size_t each = start; each < start + 8; each++) {
            number = number << 8 | text->start[each];
        }
        return number;
    }
    for (size_t each = start; each < start + 8; each++) {
        number = number << 8 | (each < text->size ? text->start[each] : 0);
    }
    return number;
}

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

/* So many tokens are laid out by their first two bytes before they are sorted, which spares most comparisons. */
#define MANY 4096
#define HEADS 65536

static size_t head_of(const struct token *token)
{
    const struct text *text = &token->text;
    return (size_t)(text->size > 0 ? text->start[0] << 8 : 0) | (text->size > 1 ? text->start[1] : 0);
}

/* Lays tokens out, and then gives where those of each head begin, to be freed; NULL with an exception. */
static uint32_t *laid_out(const struct gathered *all, struct place *places)
{
    uint32_t *starts = PyMem_Calloc(HEADS + 1, sizeof *starts);
    if (starts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t each = 0; each < all->tokens_size; each++) {
        starts[head_of(&all->tokens[each])]++;
    }
    for (size_t each = 1; each <= HEADS; each++) {
        starts[each] += starts[each - 1];
    }
    /* They are the ends still, and go down with each token. */
    for (uint32_t each = 0; each < all->tokens_size; each++) {
        places[--starts[head_of(&all->tokens[each])]] = place_of(&all->tokens[each]);
    }
    return starts;
}

/* All tokens in their order, to be freed; NULL with an exception. */
static struct place *sorted(const struct gathered *all)
{
    struct place *places = PyMem_Malloc((all->tokens_size + 1) * sizeof *places);
    if (places == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (all->tokens_size < MANY) {
        for (uint32_t each = 0; each < all->tokens_size; each++) {
            places[each] = place_of(&all->tokens[each]);
        }
        qsort(places, all->tokens_size, sizeof *places, compare_places);
        return places;
    }
    uint32_t *starts = laid_out(all, places);
    if (starts == NULL) {
        PyMem_Free(places);
        return NULL;
    }
    for (size_t each = 0; each < HEADS; each++) {
        if (starts[each + 1] - starts[each] > 1) {
            qsort(&places[starts[each]], starts[each + 1] - starts[each], sizeof *places, compare_places);
        }
    }
    PyMem_Free(starts);
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
        if (each + 8 < all->tokens_size) {
            FETCH(places[each + 8].token);
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
