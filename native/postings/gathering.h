/* Tokens of documents, gathered in a table: which documents have each. */
#pragma once

#include "reading.h"

#define NONE UINT32_MAX

/* A token, how many documents have it, and the last of them. */
struct token {
    struct text text;
    uint32_t hash, documents, last;
};

/* A token, by its place, of a document. They stand in the order of the documents. */
struct posting {
    uint32_t token, document;
};

/* `slots` holds places of `tokens` by hash, NONE where there is none; always less than half full. */
struct gathered {
    struct token *tokens;
    struct posting *postings;
    uint32_t *slots;
    uint32_t tokens_size, postings_size, tokens_room, postings_room, slots_size;
};

/* Secrets of this process, so that nobody can send texts whose tokens all meet in one slot. */
static uint64_t seeds[2];

static uint64_t mixed(uint64_t one, uint64_t other)
{
    unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

static uint32_t hash_of(const struct text *text)
{
    uint64_t hash = seeds[0] ^ text->size, part;
    const unsigned char *at = text->start, *end = at + text->size;
    for (; end - at >= 8; at += 8) {
        memcpy(&part, at, 8);
        hash = mixed(hash ^ part, seeds[1]);
    }
    part = 0;
    for (; at < end; at++) {
        part = part << 8 | *at;
    }
    hash = mixed(hash ^ part, seeds[1]);
    return (uint32_t)(hash ^ hash >> 32);
}

static int make_seeds(void)
{
    PyObject *module = PyImport_ImportModule("os");
    PyObject *random = module == NULL ? NULL : PyObject_CallMethod(module, "urandom", "n", sizeof seeds);
    Py_XDECREF(module);
    if (random == NULL) {
        return -1;
    }
    int made = PyBytes_Check(random) && PyBytes_GET_SIZE(random) == sizeof seeds;
    if (made) {
        memcpy(seeds, PyBytes_AS_STRING(random), sizeof seeds);
        seeds[1] |= 1;
    }
    Py_DECREF(random);
    if (!made) {
        PyErr_SetString(PyExc_RuntimeError, "no random bytes");
        return -1;
    }
    return 0;
}

static void *grown(void *array, uint32_t *room, size_t item)
{
    uint32_t wanted = *room ? 2 * *room : 1024;
    void *larger = wanted > *room && wanted < NONE / 2 ? PyMem_Realloc(array, wanted * item) : NULL;
    if (larger == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *room = wanted;
    return larger;
}

static int grow_slots(struct gathered *all)
{
    uint32_t size = all->slots_size ? 2 * all->slots_size : 4096;
    uint32_t *slots = PyMem_Malloc(size * sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(slots, 255, size * sizeof *slots);
    for (uint32_t each = 0; each < all->tokens_size; each++) {
        uint32_t slot = all->tokens[each].hash & (size - 1);
        while (slots[slot] != NONE) {
            slot = (slot + 1) & (size - 1);
        }
        slots[slot] = each;
    }
    PyMem_Free(all->slots);
    all->slots = slots;
    all->slots_size = size;
    return 0;
}

/* The token of this text, a new one if there was none; NULL with an exception. There is room in the slots. */
static struct token *token_for(struct gathered *all, const struct text *text, uint32_t hash)
{
    uint32_t slot = hash & (all->slots_size - 1);
    for (; all->slots[slot] != NONE; slot = (slot + 1) & (all->slots_size - 1)) {
        struct token *token = &all->tokens[all->slots[slot]];
        if (token->hash == hash && token->text.size == text->size &&
            !memcmp(token->text.start, text->start, text->size)) {
            return token;
        }
    }
    if (all->tokens_size == all->tokens_room) {
        void *tokens = grown(all->tokens, &all->tokens_room, sizeof *all->tokens);
        if (tokens == NULL) {
            return NULL;
        }
        all->tokens = tokens;
    }
    all->slots[slot] = all->tokens_size;
    struct token *token = &all->tokens[all->tokens_size++];
    *token = (struct token){*text, hash, 0, 0};
    return token;
}

static int gather_token(struct gathered *all, const struct text *text, uint32_t hash, uint32_t document)
{
    struct token *token = token_for(all, text, hash);
    if (token == NULL) {
        return -1;
    }
    if (token->documents && token->last == document) {
        return 0;
    }
    if (all->postings_size == all->postings_room) {
        void *postings = grown(all->postings, &all->postings_room, sizeof *all->postings);
        if (postings == NULL) {
            return -1;
        }
        all->postings = postings;
    }
    token->documents++;
    token->last = document;
    all->postings[all->postings_size++] = (struct posting){(uint32_t)(token - all->tokens), document};
    return 0;
}

/* How many tokens are looked up together. */
#define AT_ONCE 32

/* Up to AT_ONCE packed tokens; gives how many, -1 with an exception. */
static int take_tokens(struct reader *reader, struct text *texts)
{
    int size = 0;
    for (; size < AT_ONCE && reader->at < reader->end; size++) {
        Py_ssize_t rest = reader->end - reader->at - 2;
        Py_ssize_t length = rest >= 0 ? reader->at[0] | reader->at[1] << 8 : 0;
        if (length > rest) {
            PyErr_SetString(PyExc_ValueError, "tokens that are not packed");
            return -1;
        }
        texts[size] = (struct text){reader->at + 2, (size_t)length};
        reader->at += 2 + length;
    }
    return size;
}

static int gather_tokens(struct gathered *all, const struct text *texts, int size, uint32_t document)
{
    uint32_t hashes[AT_ONCE];
    if (2 * (all->tokens_size + AT_ONCE) >= all->slots_size && grow_slots(all)) {
        return -1;
    }
    for (int each = 0; each < size; each++) {
        hashes[each] = hash_of(&texts[each]);
        FETCH(&all->slots[hashes[each] & (all->slots_size - 1)]);
    }
    for (int each = 0; each < size; each++) {
        uint32_t found = all->slots[hashes[each] & (all->slots_size - 1)];
        if (found != NONE) {
            FETCH(&all->tokens[found]);
        }
    }
    for (int each = 0; each < size; each++) {
        if (gather_token(all, &texts[each], hashes[each], document)) {
            return -1;
        }
    }
    return 0;
}

static int gather_document(struct gathered *all, PyObject *packed, uint32_t document)
{
    struct text texts[AT_ONCE];
    struct reader reader = {(unsigned char *)PyBytes_AS_STRING(packed), NULL};
    reader.end = reader.at + PyBytes_GET_SIZE(packed);
    while (reader.at < reader.end) {
        int size = take_tokens(&reader, texts);
        if (size < 0 || gather_tokens(all, texts, size, document)) {
            return -1;
        }
    }
    return 0;
}
