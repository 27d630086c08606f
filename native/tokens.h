/* sinks.sqlite.index.tokens: the packed tokens of plain values, and what those of their path begin with. */
#ifndef IDGRAPH_TOKENS_H
#define IDGRAPH_TOKENS_H

#include "objects.h"
#include "output.h"

#include <stdint.h>

#define EXACT 9007199254740992.0 /* 2**53 */
#define LONGEST_TEXT 128 /* WORD_CHARACTERS: shorter ones are never cut */
#define LONGEST_BEGIN 64
#define UUID_SIZE 36

/* What the tokens of a path begin with, or end with: the first of the parts of PathTokens. */
enum { WORD, TEXT, NUMBER, BOOLEAN, PARTS };

/* One of these. */
struct beginning {
    const unsigned char *start;
    size_t size;
};

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
    if (at[8] != '-' || at[13] != '-' || at[18] != '-' || at[23] != '-') {
        return false;
    }
    int dashes = 0, hexadecimal = 0;
    for (int each = 0; each < UUID_SIZE; each++) {
        dashes += at[each] == '-';
        hexadecimal += is_hexadecimal(at[each]);
    }
    if (dashes != 4 || hexadecimal != UUID_SIZE - 4) {
        return false;
    }
    Py_ssize_t behind = place + UUID_SIZE;
    return behind == size || !(is_alphanumeric(text[behind]) || text[behind] == '_');
}

/* Of the ASCII characters that words are made of their lower case, 0 for all others. */
static const unsigned char in_words[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 0, 0, 0, 0, 0, 0,
    0, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o',
    'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z', 0, 0, 0, 0, 0,
    0, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o',
    'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z', 0, 0, 0, 0, 0,
};

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

#define UUID_DIGITS 32

/* The digits of a UUID in lower case: a digit has that bit already. */
static void fold_uuid(unsigned char *folded, const unsigned char *uuid)
{
    memcpy(folded, uuid, 8);
    memcpy(folded + 8, uuid + 9, 4);
    memcpy(folded + 12, uuid + 14, 4);
    memcpy(folded + 16, uuid + 19, 4);
    memcpy(folded + 20, uuid + 24, 12);
    for (int each = 0; each < UUID_DIGITS; each++) {
        folded[each] |= 0x20;
    }
}

/* The words of a text, each once, as sinks.index_values.words says: in lower case, a UUID without its dashes. */
static int put_words(struct output *output, const unsigned char *text, Py_ssize_t size, const struct beginning *ending)
{
    unsigned char folded[LONGEST_TEXT];
    struct word words[LONGEST_TEXT], word = {folded, 0};
    int found = 0;
    for (Py_ssize_t place = 0; place <= size; place++) {
        unsigned char character = place < size ? in_words[text[place]] : 0;
        if (character && !word.size && size - place >= UUID_SIZE && is_uuid(text, size, place)) {
            /* No word goes on behind it. */
            fold_uuid(&folded[word.start - folded], text + place);
            word.size = UUID_DIGITS;
            place += UUID_SIZE - 1;
        }
        else if (character) {
            folded[word.start - folded + word.size++] = character;
        }
        else if (word.size) {
            if (!is_known(words, found, &word)) {
                words[found++] = word;
                if (put_token(output, word.start, (size_t)word.size, ending->start, ending->size)) {
                    return -1;
                }
            }
            word = (struct word){word.start + word.size, 0};
        }
    }
    return 0;
}

/* Of an ASCII text of at most LONGEST_TEXT characters. */
static int put_text(struct output *output, const unsigned char *text, Py_ssize_t size, const struct beginning *begin)
{
    if (put_token(output, begin[TEXT].start, begin[TEXT].size, text, (size_t)size)) {
        return -1;
    }
    return put_words(output, text, size, &begin[WORD]);
}

/* Of a number that is positive and below EXACT: a 1 and its bits, the highest first. */
static int put_sortable(struct output *output, double number, const struct beginning *begin)
{
    uint64_t bits;
    unsigned char bytes[9] = {1};
    memcpy(&bits, &number, sizeof bits);
    for (int each = 8; each >= 1; each--, bits >>= 8) {
        bytes[each] = bits & 255;
    }
    return put_token(output, begin[NUMBER].start, begin[NUMBER].size, bytes, sizeof bytes);
}

static int put_boolean(struct output *output, bool value, const struct beginning *begin)
{
    return put_token(output, begin[BOOLEAN].start, begin[BOOLEAN].size, value ? "1" : "0", 1);
}

/* The parts of PathTokens, borrowed; false for what is none. */
static bool read_beginnings(PyObject *parts, struct beginning *begin)
{
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) < PARTS) {
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

/* Adds packed tokens, which it takes over. */
static int put_packed(struct output *output, PyObject *packed)
{
    if (packed == NULL) {
        return -1;
    }
    int failed = !are_bytes(&packed, 1) ||
                 put(output, PyBytes_AS_STRING(packed), (size_t)PyBytes_GET_SIZE(packed));
    Py_DECREF(packed);
    return failed ? -1 : 0;
}

#endif
