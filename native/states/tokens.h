/* sinks.sqlite_index_tokens.Tokenizer.tokens_of_state: what the index's tokens are of a state. */
#pragma once

#include "../tokens.h"
#include "fields.h"

/* What tokens begin with, of plain values (None where they may not be indexed) and of others, by path; who says the
 * tokens of a value that is not plain; and whether a path was no text. */
struct token_sources {
    PyObject *plan, *paths, *odd;
    bool is_damaged;
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
        odd |= (character == '\\') | (character == '"');
    }
    return all < 128 && !odd;
}

/* The positive number below EXACT that this is, as a whole or as digits around a point, so few that the quotient of both
 * is the nearest double; 0 for others. */
static double positive_of(const struct text *value)
{
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
    long long digits = 0;
    Py_ssize_t point = -1;
    if (value->size > SAFE_LITERAL + 1) {
        return 0.0;
    }
    for (Py_ssize_t each = 0; each < value->size; each++) {
        char character = value->start[each];
        if (character == '.' && point < 0 && each) {
            point = each;
        }
        else if (character >= '0' && character <= '9') {
            digits = digits * 10 + (character - '0');
        }
        else {
            return 0.0;
        }
    }
    Py_ssize_t behind = point < 0 ? 0 : value->size - point - 1;
    if ((point >= 0 && (value->size > SAFE_LITERAL || !behind)) || (*value->start == '0' && point != 1)) {
        return 0.0;
    }
    return digits < (long long)EXACT ? (double)digits / powers[behind] : 0.0;
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

/* What a sealed value can be found by, as model.sealed says: of no size where there is nothing. False for odd ones. */
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

static int put_register(struct output *output, const struct entry *entry, struct token_sources *sources)
{
    if (entry->kind == DELETED) {
        return 0;
    }
    PyObject *path = path_of(&entry->path);
    if (path == NULL) {
        sources->is_damaged = PyErr_ExceptionMatches(PyExc_UnicodeDecodeError);
        return -1;
    }
    int failed = put_value(output, entry, path, sources);
    Py_DECREF(path);
    return failed;
}

PyDoc_STRVAR(tokens_doc, "tokens(data, plan, paths, odd): the packed tokens of a state. What they begin with stands by path\n"
                         "in `plan`, None for those whose plain values have none, an empty tuple for those that\n"
                         "are not known, and for sealed ones in `paths`;\n"
                         "odd(path, kind, json) gives the tokens of a value that is no short ASCII text, positive\n"
                         "number or boolean. None for the twin to say.");

static PyObject *tokens(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 4) || !are_bytes(arguments, 1) || !check_dict(arguments[1]) ||
        !check_dict(arguments[2])) {
        return NULL;
    }
    struct state *state = state_of(arguments[0]);
    if (state == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    struct token_sources sources = {arguments[1], arguments[2], arguments[3], false};
    struct output output = {NULL, 0, 0};
    PyObject *made = NULL;
    int failed = more(&output, 2048) == NULL;
    for (int each = 0; !failed && each < state->registers_size; each++) {
        failed = put_register(&output, &state->registers[each], &sources);
    }
    if (!failed) {
        made = PyBytes_FromStringAndSize(output.bytes, (Py_ssize_t)output.size);
    }
    PyMem_Free(output.bytes);
    PyMem_Free(state);
    if (sources.is_damaged) {
        /* The twin says so. */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return made;
}
