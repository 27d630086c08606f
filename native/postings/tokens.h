/* sinks.sqlite_index_tokens.Tokenizer.tokens: the packed tokens of fields. */
#pragma once

#include "reading.h"

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
    unsigned char *end = (unsigned char *)more(output, 2 + size + other_size);
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
    if (!check_arguments(given, 3) || !check_dict(arguments[0]) || !check_dict(arguments[1])) {
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
        failed = failed || !still_as_long(arguments[0], size);
    }
    if (!failed) {
        made = PyBytes_FromStringAndSize(output.bytes, (Py_ssize_t)output.size);
    }
    PyMem_Free(output.bytes);
    return made;
}
