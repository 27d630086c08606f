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

/* All tokens in their order, to be freed; NULL with an exception. */
static struct place *sorted(const struct gathered *all)
{
    struct place *places = PyMem_Calloc(all->tokens_size + 1, sizeof *places);
    if (places == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t each = 0; each < all->tokens_size; each++) {
        const struct token *token = &all->tokens[each];
        places[each] = (struct place){number_from(&token->text, 0), number_from(&token->text, 8), token};
    }
    qsort(places, all->tokens_size, sizeof *places, compare_places);
    return places;
}

static PyObject *blocks_of(struct gathered *all)
{
    struct writer writer = {PyList_New(0), {0}, {0}, {0}};
    struct output documents = {0};
    struct place *places = sorted(all);
    bool failed = writer.made == NULL || places == NULL;
    for (uint32_t each = 0; !failed && each < all->tokens_size; each++) {
        if (each + 8 < all->tokens_size) {
            FETCH(places[each + 8].token);
        }
        const struct token *token = places[each].token;
        uint32_t before = 0;
        documents.size = 0;
        for (uint32_t place = token->first; !failed && place != NONE; place = all->postings[place].next) {
            failed = put_number(&documents, all->postings[place].document - before);
            before = all->postings[place].document;
        }
        failed = failed || write_entry(&writer, &token->text, token->documents, &documents);
    }
    PyMem_Free(documents.bytes);
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
