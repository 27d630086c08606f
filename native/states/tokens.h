/* sinks.sqlite.index.tokens.Tokenizer.tokens_of_states: what the index's tokens are of states. */
#pragma once

#include "../tokens.h"
#include "fields.h"

/* What tokens begin with, of plain values (None where they may not be indexed) and of others, by path; and who says the
 * tokens of a value that is not plain. */
struct token_sources {
    PyObject *plan, *paths, *odd;
};

/* Whether a text can be taken apart here: short, ASCII, nothing escaped. */
static bool is_simple(const struct text *text)
{
    unsigned char all = 0, odd = 0;
    if (text->size > LONGEST_TEXT) {
        return false;
    }
    for (Py_ssize_t each = 0; each < text->size; each++) {
        unsigned char character = (unsigned char)text->start[each];
        all |= character;
        odd |= (character == '\\') | (character == '"') | (character < ' ');
    }
    return all < 128 && !odd;
}

/* Longer numbers are the reference's. */
#define LONGEST_DECIMAL 32

/* The double that is nearest to digits around a point. */
static double nearest_to(const struct text *value)
{
    char digits[LONGEST_DECIMAL + 1];
    memcpy(digits, value->start, (size_t)value->size);
    digits[value->size] = 0;
    double number = PyOS_string_to_double(digits, NULL, NULL);
    if (number == -1.0) {
        PyErr_Clear();
        return 0.0;
    }
    return number;
}

/* The positive number below EXACT that this is, as a whole or as digits around a point; 0 for others. */
static double positive_of(const struct text *value)
{
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
    unsigned long long digits = 0;
    Py_ssize_t point = -1;
    if (value->size > LONGEST_DECIMAL) {
        return 0.0;
    }
    for (Py_ssize_t each = 0; each < value->size; each++) {
        char character = value->start[each];
        if (character == '.' && point < 0 && each) {
            point = each;
        }
        else if (character >= '0' && character <= '9') {
            digits = digits * 10 + (unsigned long long)(character - '0');
        }
        else {
            return 0.0;
        }
    }
    Py_ssize_t behind = point < 0 ? 0 : value->size - point - 1;
    if ((point >= 0 ? !behind : value->size > SAFE_LITERAL + 1) || (*value->start == '0' && point != 1)) {
        return 0.0;
    }
    /* Of few digits the quotient is the nearest double. */
    double number = point >= 0 && value->size > SAFE_LITERAL ? nearest_to(value) : (double)digits / powers[behind];
    return number < EXACT ? number : 0.0;
}

/* What is between the quotes of a text; false for what is none. */
static bool is_quoted(const struct text *value, struct text *inner)
{
    *inner = (struct text){value->start + 1, value->size - 2};
    return inner->size >= 0 && *value->start == '"' && value->start[value->size - 1] == '"';
}

/* 1, or 0 for what `odd` must say, or -1 with an exception. */
static int put_plain(struct output *output, const struct text *value, const struct beginning *begin)
{
    struct text inner;
    if (is_quoted(value, &inner)) {
        return !is_simple(&inner)                                                                 ? 0
               : put_text(output, (const unsigned char *)inner.start, inner.size, begin) ? -1
                                                                                         : 1;
    }
    bool is_true = value->size == 4 && !memcmp(value->start, "true", 4);
    if (is_true || (value->size == 5 && !memcmp(value->start, "false", 5))) {
        return put_boolean(output, is_true, begin) ? -1 : 1;
    }
    double number = positive_of(value);
    return number == 0.0 ? 0 : put_sortable(output, number, begin) ? -1 : 1;
}

/* What a sealed value can be found by, as idgraph.model.classification says: of no size where there is nothing. False for odd ones. */
static bool token_within(const struct text *value, struct text *token)
{
    struct text inner;
    if (!is_quoted(value, &inner) || memchr(inner.start, '\\', (size_t)inner.size) != NULL) {
        return false;
    }
    const char *end = inner.start + inner.size, *dot = memchr(inner.start, '.', (size_t)inner.size);
    *token = dot == NULL ? (struct text){end, 0} : (struct text){dot + 1, end - dot - 1};
    return !token->size || is_simple(token);
}

/* What stands at a path, as a new reference; a dict may make what it has not. */
static PyObject *beginnings_at(PyObject *dict, PyObject *path)
{
    PyObject *found = PyDict_GetItemWithError(dict, path);
    return found != NULL ? Py_NewRef(found) : PyErr_Occurred() ? NULL : PyObject_GetItem(dict, path);
}

static int put_value(struct output *output, const struct entry *entry, PyObject *path, const struct token_sources *sources)
{
    struct text token = {NULL, 0};
    bool is_sealed = entry->kind == SEALED, is_simple_token = is_sealed && token_within(&entry->value, &token);
    if (is_simple_token && !token.size) {
        return 0;
    }
    int done = 0;
    if (!is_sealed || is_simple_token) {
        PyObject *parts = beginnings_at(is_sealed ? sources->paths : sources->plan, path);
        if (parts == NULL || parts == Py_None) {
            Py_XDECREF(parts);
            return parts == NULL ? -1 : 0;
        }
        struct beginning begin[PARTS];
        if (read_beginnings(parts, begin)) {
            done = !is_sealed ? put_plain(output, &entry->value, begin)
                   : put_text(output, (const unsigned char *)token.start, token.size, begin) ? -1
                                                                                             : 1;
        }
        Py_DECREF(parts);
    }
    if (done) {
        return done < 0 ? -1 : 0;
    }
    /* Which may say that there is nothing, of a path that nobody gave a number. */
    return put_packed(output, PyObject_CallFunction(sources->odd, "Oiy#", path, entry->kind, entry->value.start,
                                                    entry->value.size));
}

/* The tokens of all registers; -1 with an exception. */
static int put_tokens(struct output *output, const struct state *state, const struct token_sources *sources)
{
    for (int each = 0; each < state->registers_size; each++) {
        const struct entry *entry = &state->registers[each];
        if (entry->kind == DELETED) {
            continue;
        }
        PyObject *path = path_of(&entry->path);
        int failed = path == NULL || put_value(output, entry, path, sources);
        Py_XDECREF(path);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* How much of the next state is fetched while one is made into tokens. */
#define FETCHED 1024
#define LINE 64

static void fetch_state(PyObject *data)
{
    for (size_t each = 0; each < FETCHED; each += LINE) {
        FETCH((char *)data + each);
    }
}

/* Room that `kept` gives for this JSON, or a larger one in its place; NULL with an exception. */
static struct state *room_for(struct state **kept, struct text json)
{
    if (*kept == NULL || (*kept)->room < room_of(json)) {
        PyMem_Free(*kept);
        *kept = new_state(json);
        if (*kept == NULL) {
            PyErr_NoMemory();
        }
    }
    return *kept;
}

/* Appends the tokens of one state, None where the reference must say; -1 with an exception. */
static int append_tokens(PyObject *made, PyObject *data, struct state **kept, struct output *output,
                         const struct token_sources *sources)
{
    struct text json = json_of(data, HEADER);
    struct state *state = room_for(kept, json);
    if (state == NULL) {
        return -1;
    }
    output->size = 0;
    if (!read_state(json, state)) {
        return PyList_Append(made, Py_None);
    }
    if (put_tokens(output, state, sources)) {
        if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
            return -1;
        }
        PyErr_Clear();
        return PyList_Append(made, Py_None);
    }
    PyObject *packed = PyBytes_FromStringAndSize(output->bytes, (Py_ssize_t)output->size);
    int failed = packed == NULL || PyList_Append(made, packed);
    Py_XDECREF(packed);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(tokens_doc, "tokens(states, plan, paths, odd): the packed tokens of each state. What they begin with stands by\n"
                         "path in `plan`, None for those whose plain values have none, an empty tuple for those that\n"
                         "are not known, and for sealed ones in `paths`;\n"
                         "odd(path, kind, json) gives the tokens of a value that is no short ASCII text, positive\n"
                         "number or boolean. None for the reference to say, also where `odd` raises an Exception other\n"
                         "than MemoryError.");

static PyObject *tokens(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 4) || !check_dict(arguments[1]) || !check_dict(arguments[2])) {
        return NULL;
    }
    /* A tuple of its own, that stays as it is. */
    PyObject *states = PySequence_Tuple(arguments[0]);
    if (states == NULL) {
        return NULL;
    }
    struct token_sources sources = {arguments[1], arguments[2], arguments[3]};
    struct output output = {NULL, 0, 0};
    struct state *kept = NULL;
    PyObject *made = PyList_New(0);
    bool failed = made == NULL || more(&output, 2048) == NULL;
    Py_ssize_t size = PyTuple_GET_SIZE(states);
    for (Py_ssize_t each = 0; !failed && each < size; each++) {
        PyObject *data = PyTuple_GET_ITEM(states, each);
        if (each + 1 < size) {
            fetch_state(PyTuple_GET_ITEM(states, each + 1));
        }
        failed = !are_bytes(&data, 1) || append_tokens(made, data, &kept, &output, &sources);
    }
    if (failed) {
        Py_CLEAR(made);
    }
    PyMem_Free(kept);
    PyMem_Free(output.bytes);
    Py_DECREF(states);
    return made;
}
