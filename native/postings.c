/* The SQLite index's tokens and blocks of postings. Each function has a twin in Python, named above it, which says
 * what is right; tests/properties/test_native_postings.py holds the two equal. See README.md.
 *
 * Blocks come from a file: no byte of one is trusted.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE 0
#endif

/* What is looked up lies all over memory: fetching it is what takes longest. */
#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

static bool check_arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "%zd arguments where %zd are needed", given, wanted);
    }
    return given == wanted;
}

static bool are_bytes(PyObject *const *arguments, int size)
{
    for (int each = 0; each < size; each++) {
        if (!PyBytes_Check(arguments[each])) {
            PyErr_Format(PyExc_TypeError, "a %s where bytes are needed", Py_TYPE(arguments[each])->tp_name);
            return false;
        }
    }
    return true;
}

/* ---- writing ---- */

struct output {
    unsigned char *bytes;
    size_t size, room;
};

/* Room for so many bytes more, at its end; NULL with an exception. */
static unsigned char *more(struct output *output, size_t size)
{
    if (output->bytes == NULL || output->room - output->size < size) {
        size_t room = 2 * output->room + size + 256;
        unsigned char *bytes = PyMem_Realloc(output->bytes, room);
        if (bytes == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        output->bytes = bytes;
        output->room = room;
    }
    return output->bytes + output->size;
}

static int put(struct output *output, const void *bytes, size_t size)
{
    unsigned char *end = more(output, size);
    if (end == NULL) {
        return -1;
    }
    memcpy(end, bytes, size);
    output->size += size;
    return 0;
}

/* Seven bits a byte, the lowest first; the last byte has no high bit. */
static int put_number(struct output *output, uint64_t number)
{
    unsigned char *end = more(output, 10);
    if (end == NULL) {
        return -1;
    }
    for (; number > 127; number >>= 7) {
        *end++ = (unsigned char)(number | 128);
    }
    *end++ = (unsigned char)number;
    output->size = (size_t)(end - output->bytes);
    return 0;
}

/* ---- reading ---- */

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

/* One entry after another of a block. `token` is put together of what it shares with the one before. */
struct cursor {
    struct reader reader;
    struct output token;
    uint64_t documents;
};

static struct text token_of(const struct cursor *cursor)
{
    return (struct text){cursor->token.bytes, cursor->token.size};
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

/* ---- sinks.sqlite_index_tokens.Tokenizer.tokens ---- */

#define EXACT 9007199254740992.0 /* 2**53 */
#define LONGEST_TEXT 128 /* WORD_CHARACTERS: shorter ones are never cut */
#define LONGEST_BEGIN 64
#define UUID_SIZE 36

/* What the tokens of a path begin with, or end with: the first of the parts of PathTokens. */
enum { WORD, TEXT, NUMBER, PARTS };

/* The positive number that a double holds exactly, 0 for any other value. */
static double positive(PyObject *value)
{
    double number = 0.0;
    if (PyFloat_CheckExact(value)) {
        number = PyFloat_AS_DOUBLE(value);
    }
    else if (PyLong_CheckExact(value)) {
        int overflow;
        long long whole = PyLong_AsLongLongAndOverflow(value, &overflow);
        number = overflow ? 0.0 : (double)whole;
    }
    return number > 0.0 && number < EXACT ? number : 0.0;
}

static bool is_digit(unsigned char each)
{
    return each >= '0' && each <= '9';
}

static bool is_hexadecimal(unsigned char each)
{
    return is_digit(each) || ((each | 0x20) >= 'a' && (each | 0x20) <= 'f');
}

static bool is_alphanumeric(unsigned char each)
{
    return is_digit(each) || ((each | 0x20) >= 'a' && (each | 0x20) <= 'z');
}

/* Whether a UUID begins here, as `_uuid` of sinks.index_values says. */
static bool is_uuid(const unsigned char *text, Py_ssize_t size, Py_ssize_t place)
{
    const unsigned char *at = text + place;
    if (size - place < UUID_SIZE || (place && (is_alphanumeric(at[-1]) || at[-1] == '_'))) {
        return false;
    }
    for (int each = 0; each < UUID_SIZE; each++) {
        bool is_dash = each == 8 || each == 13 || each == 18 || each == 23;
        if (is_dash ? at[each] != '-' : !is_hexadecimal(at[each])) {
            return false;
        }
    }
    Py_ssize_t behind = place + UUID_SIZE;
    return behind == size || !(is_alphanumeric(text[behind]) || text[behind] == '_');
}

/* The text as its words are found in it: in lower case, UUIDs without their dashes. Gives its size. */
static Py_ssize_t fold(const unsigned char *text, Py_ssize_t size, unsigned char *folded)
{
    Py_ssize_t made = 0, uuid = -UUID_SIZE;
    for (Py_ssize_t each = 0; each < size; each++) {
        if (each >= uuid + UUID_SIZE && size >= UUID_SIZE && is_uuid(text, size, each)) {
            uuid = each;
        }
        if (text[each] == '-' && each < uuid + UUID_SIZE) {
            continue;
        }
        bool is_upper = text[each] >= 'A' && text[each] <= 'Z';
        folded[made++] = is_upper ? text[each] | 0x20 : text[each];
    }
    return made;
}

struct word {
    const unsigned char *start;
    Py_ssize_t size;
};

static bool is_known(const struct word *words, int size, const struct word *word)
{
    for (int each = 0; each < size; each++) {
        if (words[each].size == word->size && !memcmp(words[each].start, word->start, (size_t)word->size)) {
            return true;
        }
    }
    return false;
}

/* One token of two parts, behind its length. */
static int put_token(struct output *output, const void *one, size_t size, const void *other, size_t other_size)
{
    unsigned char *end = more(output, 2 + size + other_size);
    if (end == NULL) {
        return -1;
    }
    end[0] = (unsigned char)((size + other_size) & 255);
    end[1] = (unsigned char)((size + other_size) >> 8);
    memcpy(end + 2, one, size);
    memcpy(end + 2 + size, other, other_size);
    output->size += 2 + size + other_size;
    return 0;
}

/* Each word once. */
static int put_words(struct output *output, const unsigned char *text, Py_ssize_t size, const struct text *ending)
{
    struct word words[LONGEST_TEXT];
    int found = 0;
    for (Py_ssize_t place = 0; place < size; place++) {
        struct word word = {text + place, 0};
        while (place < size && is_alphanumeric(text[place])) {
            place++;
        }
        word.size = text + place - word.start;
        if (word.size && !is_known(words, found, &word)) {
            words[found++] = word;
            if (put_token(output, word.start, (size_t)word.size, ending->start, ending->size)) {
                return -1;
            }
        }
    }
    return 0;
}

static int put_text(struct output *output, PyObject *text, const struct text *begin)
{
    unsigned char folded[LONGEST_TEXT];
    const unsigned char *characters = PyUnicode_1BYTE_DATA(text);
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    if (put_token(output, begin[TEXT].start, begin[TEXT].size, characters, (size_t)size)) {
        return -1;
    }
    return put_words(output, folded, fold(characters, size, folded), &begin[WORD]);
}

/* A 1 and the number's bits, the highest first. */
static int put_sortable(struct output *output, double number, const struct text *begin)
{
    uint64_t bits;
    unsigned char bytes[9] = {1};
    memcpy(&bits, &number, sizeof bits);
    for (int each = 8; each >= 1; each--, bits >>= 8) {
        bytes[each] = bits & 255;
    }
    return put_token(output, begin[NUMBER].start, begin[NUMBER].size, bytes, sizeof bytes);
}

/* What the tokens of a path begin and end with, borrowed; false for a path that the twin must see. */
static bool begin_of(PyObject *paths, PyObject *path, struct text *begin)
{
    PyObject *parts = PyDict_GetItemWithError(paths, path);
    if (parts == NULL || !PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) < PARTS) {
        return false;
    }
    for (int each = 0; each < PARTS; each++) {
        PyObject *part = PyTuple_GET_ITEM(parts, each);
        if (!PyBytes_CheckExact(part) || PyBytes_GET_SIZE(part) > LONGEST_BEGIN) {
            return false;
        }
        begin[each].start = (unsigned char *)PyBytes_AS_STRING(part);
        begin[each].size = (size_t)PyBytes_GET_SIZE(part);
    }
    return true;
}

/* Tokens that need no call: 1, 0 for those that the twin must say, or -1 with an exception. */
static int put_known(struct output *output, PyObject *path, PyObject *value, PyObject *paths)
{
    struct text begin[PARTS];
    if (!begin_of(paths, path, begin)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (PyUnicode_CheckExact(value)) {
        if (!PyUnicode_IS_READY(value) || !PyUnicode_IS_ASCII(value) ||
            PyUnicode_GET_LENGTH(value) > LONGEST_TEXT) {
            return 0;
        }
        return put_text(output, value, begin) ? -1 : 1;
    }
    double number = positive(value);
    if (number == 0.0) {
        return 0;
    }
    return put_sortable(output, number, begin) ? -1 : 1;
}

/* As `odd` says. */
static int put_odd(struct output *output, PyObject *path, PyObject *value, PyObject *odd)
{
    PyObject *packed = PyObject_CallFunctionObjArgs(odd, path, value, NULL);
    if (packed == NULL) {
        return -1;
    }
    int failed = !are_bytes(&packed, 1) ||
                 put(output, PyBytes_AS_STRING(packed), (size_t)PyBytes_GET_SIZE(packed));
    Py_DECREF(packed);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(tokens_doc, "tokens(fields, paths, odd): the packed tokens of all fields; of others than short ASCII texts and\n"
                         "plain numbers as odd(path, value) says.");

static PyObject *tokens(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 3) || !PyDict_Check(arguments[0]) || !PyDict_Check(arguments[1])) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a dict is needed");
        }
        return NULL;
    }
    struct output output = {NULL, 0, 0};
    PyObject *path, *value, *made = NULL;
    Py_ssize_t place = 0, size = PyDict_GET_SIZE(arguments[0]);
    int failed = more(&output, 1024) == NULL;
    while (!failed && PyDict_Next(arguments[0], &place, &path, &value)) {
        Py_INCREF(path);
        Py_INCREF(value);
        int done = put_known(&output, path, value, arguments[1]);
        failed = done < 0 || (!done && put_odd(&output, path, value, arguments[2]));
        Py_DECREF(path);
        Py_DECREF(value);
        if (!failed && PyDict_GET_SIZE(arguments[0]) != size) {
            PyErr_SetString(PyExc_RuntimeError, "dictionary changed size during iteration");
            failed = 1;
        }
    }
    if (!failed) {
        made = PyBytes_FromStringAndSize((char *)output.bytes, (Py_ssize_t)output.size);
    }
    PyMem_Free(output.bytes);
    return made;
}

/* ---- sinks.sqlite_index_blocks._blocks ---- */

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
    while (shared < most && token->start[shared] == writer->last.bytes[shared]) {
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

/* ---- sinks.sqlite_index_blocks.build ---- */

#define NONE UINT32_MAX

/* A token of some documents: the first and the last of its postings. */
struct token {
    struct text text;
    uint32_t hash, first, last, documents;
};

/* Where a token stands among all in their order: `head` and `next` are its first 16 bytes as numbers. */
struct place {
    uint64_t head, next;
    const struct token *token;
};

/* A document that has a token, and the next one. */
struct posting {
    uint32_t document, next;
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
    memcpy(&part, at, (size_t)(end - at));
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

/* Eight bytes of a text from `start` on as a number, zeros behind its end. */
static uint64_t number_from(const struct text *text, size_t start)
{
    uint64_t number = 0;
    for (size_t each = start; each < start + 8; each++) {
        number = number << 8 | (each < text->size ? text->start[each] : 0);
    }
    return number;
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
    *token = (struct token){*text, hash, NONE, NONE, 0};
    return token;
}

static int gather_token(struct gathered *all, const struct text *text, uint32_t hash, uint32_t document)
{
    struct token *token = token_for(all, text, hash);
    if (token == NULL) {
        return -1;
    }
    if (token->documents && all->postings[token->last].document == document) {
        return 0;
    }
    if (all->postings_size == all->postings_room) {
        void *postings = grown(all->postings, &all->postings_room, sizeof *all->postings);
        if (postings == NULL) {
            return -1;
        }
        all->postings = postings;
    }
    uint32_t place = all->postings_size++;
    all->postings[place] = (struct posting){document, NONE};
    if (token->documents++) {
        all->postings[token->last].next = place;
    }
    else {
        token->first = place;
    }
    token->last = place;
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

/* ---- sinks.sqlite_index_blocks.merge ---- */

/* The blocks of one segment, a tuple, read one after another. `alive` has a byte for each of its documents. */
struct part {
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
    return found < 0 ? -1 : 0;
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
        if (put_number(&merged->documents, part->shift + document - merged->before)) {
            return -1;
        }
        merged->before = part->shift + document;
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
        struct text token = token_of(&parts[each].cursor);
        struct text best = found == NULL ? token : token_of(&found->cursor);
        if (found == NULL || compare_texts(&token, &best) < 0) {
            found = &parts[each];
        }
    }
    return found;
}

static int merge_entry(struct part *parts, Py_ssize_t size, struct merged *merged)
{
    struct text token = {merged->token.bytes, merged->token.size};
    for (Py_ssize_t each = 0; each < size; each++) {
        struct text other = token_of(&parts[each].cursor);
        if (!parts[each].is_at_end && !compare_texts(&token, &other) &&
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
                 merge_entry(parts, size, &merged);
        struct text token = {merged.token.bytes, merged.token.size};
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

/* ---- sinks.sqlite_index_blocks.find ---- */

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

static PyMethodDef methods[] = {
    {"tokens", (PyCFunction)(void (*)(void))tokens, METH_FASTCALL, tokens_doc},
    {"build", build, METH_O, build_doc},
    {"merge", merge, METH_O, merge_doc},
    {"find", (PyCFunction)(void (*)(void))find, METH_FASTCALL, find_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_postings", "Blocks of postings.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__postings(void)
{
    PyObject *module = make_seeds() ? NULL : PyModule_Create(&definition);
    /* Which source this was built from, so that an old build is not taken for a new one. */
    PyObject *source = module == NULL ? NULL : PyLong_FromUnsignedLong(SOURCE);
    if (source == NULL || PyModule_AddObjectRef(module, "SOURCE", source)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(source);
    return module;
}
