/* What readers take from a state: its identifiers, and the fields that the index may have. */
#pragma once

#include "joined.h"
#include <math.h>
#include <stdint.h>

struct evidence {
    int identifiers_size, sightings_size;
    struct named identifiers[MOST_IDENTIFIERS];
    struct sighting sightings[MOST_SIGHTINGS];
};

/* Whether a state's identifiers and sightings are of the common form, and none is of an event that can be taken back. */
static bool read_evidence(PyObject *data, struct evidence *found)
{
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data);
    /* They come last: the last `},[],{` that parses to the end is where they begin, unless one stands in a text. */
    struct reader reader = {NULL, end};
    for (const char *at = end - 2; at - 5 > start + HEADER; at--) {
        if (!memcmp(at - 5, "},[],{", 6)) {
            reader.at = at;
            break;
        }
    }
    if (reader.at == NULL ||
        !read_identifiers(&reader, MOST_ORIGINS, found->identifiers, &found->identifiers_size) ||
        !take(&reader, ',') ||
        !read_sightings(&reader, MOST_ORIGINS, found->sightings, &found->sightings_size) || !take(&reader, ']') ||
        reader.at != end) {
        return false;
    }
    for (int each = 0; each < found->sightings_size; each++) {
        /* merge.identity.evidence.is_of_one_event */
        if (found->sightings[each].key.size && *found->sightings[each].key.start == '|') {
            return false;
        }
    }
    return true;
}

/* Whether each identifier of a fragment stands beside its `own` in some sighting, and the spec says nothing of any. */
static bool is_plain(struct text own, const struct evidence *found)
{
    uint64_t linked = 0, all = ((uint64_t)1 << found->identifiers_size) - 1;
    for (int each = 0; each < found->identifiers_size; each++) {
        linked |= (uint64_t)!compare_texts(&found->identifiers[each].name, &own) << each;
    }
    bool has_own = linked;
    for (int each = 0; each < found->sightings_size; each++) {
        struct text key = found->sightings[each].key, other;
        const char *end = key.start + key.size, *at = memchr(key.start, '|', (size_t)key.size);
        if (at == NULL || end - at < 2 || at[1] != '|' || memchr(key.start, '%', (size_t)key.size) != NULL) {
            return false;
        }
        for (at += 2; at < end; at = other.start + other.size + 1) {
            const char *bar = memchr(at, '|', (size_t)(end - at));
            other = (struct text){at, (bar == NULL ? end : bar) - at};
            for (int name = 0; name < found->identifiers_size; name++) {
                linked |= (uint64_t)!compare_texts(&found->identifiers[name].name, &other) << name;
            }
        }
    }
    return has_own && linked == all;
}

/* Of the oldest event of a fragment's identifiers ordinal, source and id; None where their links are not plain. */
static PyObject *shown_since(struct text json, struct text own, const struct evidence *found)
{
    struct origin origins[MOST_ORIGINS];
    struct reader reader = {json.start, json.start + json.size};
    int size, oldest = MOST_ORIGINS;
    for (int each = 0; each < found->identifiers_size; each++) {
        int place = found->identifiers[each].origin;
        oldest = place < oldest ? place : oldest;
    }
    /* Origins are sorted, by their priority first. */
    if (!is_plain(own, found) || !take(&reader, '[') || !read_origins(&reader, origins, &size) || oldest >= size ||
        origins[oldest].priority != origins[size - 1].priority) {
        Py_RETURN_NONE;
    }
    struct origin *origin = &origins[oldest];
    return Py_BuildValue("Ls#s#", origin->ordinal, origin->source.start, origin->source.size, origin->event.start,
                         origin->event.size);
}

PyDoc_STRVAR(identifiers_doc, "identifiers(data, own): the identifiers of a state, a frozenset, and of their oldest event ordinal,\n"
                              "source and id if all are plainly linked with `own`; None for the reference to say.");

static PyObject *identifiers(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    struct text own;
    struct evidence found;
    if (!check_arguments(given, 2) || !are_bytes(arguments, 1) ||
        (own.start = PyUnicode_AsUTF8AndSize(arguments[1], &own.size)) == NULL) {
        return NULL;
    }
    if (!read_evidence(arguments[0], &found)) {
        Py_RETURN_NONE;
    }
    PyObject *names = PyFrozenSet_New(NULL);
    for (int each = 0; names != NULL && each < found.identifiers_size; each++) {
        struct text *text = &found.identifiers[each].name;
        PyObject *name = PyUnicode_DecodeUTF8(text->start, text->size, NULL);
        if (name == NULL || PySet_Add(names, name)) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    PyObject *since = names == NULL ? NULL : shown_since(json_of(arguments[0], HEADER), own, &found);
    PyObject *made = Py_BuildValue("NN", names, since);
    if (made == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        /* The reference says what is damaged. */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return made;
}

/* So few characters that a double holds the number: as in idgraph.model.canonical. */
#define SAFE_LITERAL 15

/* A JSON number that is a plain int or float for certain: NULL without an exception for others. */
static PyObject *number_of(const struct text *value)
{
    struct reader reader = {value->start, value->start + value->size};
    long long whole;
    if (!take_number(&reader, &whole)) {
        return NULL;
    }
    if (reader.at == reader.end) {
        return PyLong_FromLongLong(whole);
    }
    char digits[SAFE_LITERAL + 1];
    if (value->size > SAFE_LITERAL || !take(&reader, '.') || reader.at == reader.end) {
        return NULL;
    }
    while (reader.at < reader.end && *reader.at >= '0' && *reader.at <= '9') {
        reader.at++;
    }
    if (reader.at < reader.end) {
        return NULL;
    }
    memcpy(digits, value->start, (size_t)value->size);
    digits[value->size] = 0;
    char *end;
    double number = PyOS_string_to_double(digits, &end, NULL);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    return end != digits + value->size || !isfinite(number) || fabs(number) < 1e-300 ? NULL : PyFloat_FromDouble(number);
}

/* Whether this is one text in quotes with nothing escaped in it: `inner` is what is between them. */
static bool is_plain_text(const struct text *value, struct text *inner)
{
    *inner = (struct text){value->start + 1, value->size - 2};
    return inner->size >= 0 && *value->start == '"' && value->start[value->size - 1] == '"' &&
           memchr(inner->start, '"', (size_t)inner->size) == NULL && memchr(inner->start, '\\', (size_t)inner->size) == NULL;
}

/* A value that the index holds as it is: NULL without an exception for others. */
static PyObject *scalar_of(const struct text *value)
{
    struct text inner;
    if (is_plain_text(value, &inner)) {
        return PyUnicode_DecodeUTF8(inner.start, inner.size, NULL);
    }
    char first = value->start[0];
    if (value->size == 4 && !memcmp(value->start, "true", 4)) {
        return Py_NewRef(Py_True);
    }
    if (value->size == 5 && !memcmp(value->start, "false", 5)) {
        return Py_NewRef(Py_False);
    }
    return first == '-' || (first >= '0' && first <= '9') ? number_of(value) : NULL;
}

/* The token of a sealed value, as idgraph.model.classification says, or None: NULL without an exception for odd ones. */
static PyObject *token_of(const struct text *value)
{
    struct text inner;
    if (!is_plain_text(value, &inner)) {
        return NULL;
    }
    const char *end = inner.start + inner.size;
    const char *dot = memchr(inner.start, '.', (size_t)inner.size);
    return dot == NULL || dot + 1 == end ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8(dot + 1, end - dot - 1, NULL);
}

/* None in place of a value; NULL stays. */
static PyObject *hidden(PyObject *value)
{
    if (value == NULL) {
        return NULL;
    }
    Py_DECREF(value);
    return Py_NewRef(Py_None);
}

/* Whom to ask about values, and whether one of them raised. */
struct asked {
    PyObject *is_indexable, *odd;
    bool has_raised;
};

/* What the index may know of a register; None for nothing. Also what it may not know is read: it may be damaged. */
static PyObject *field(const struct entry *entry, PyObject *path, struct asked *asked)
{
    bool is_hidden = false;
    if (entry->kind == SEALED) {
        PyObject *token = token_of(&entry->value);
        if (token != NULL || PyErr_Occurred()) {
            return token;
        }
    }
    if (entry->kind == PLAIN) {
        PyObject *answer = PyObject_CallOneArg(asked->is_indexable, path);
        int indexable = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        if (indexable < 0) {
            asked->has_raised = true;
            return NULL;
        }
        is_hidden = !indexable;
        PyObject *value = scalar_of(&entry->value);
        if (value != NULL || PyErr_Occurred()) {
            return is_hidden ? hidden(value) : value;
        }
    }
    PyObject *shown = PyObject_CallFunction(asked->odd, "iy#", entry->kind, entry->value.start, entry->value.size);
    asked->has_raised = shown == NULL;
    return is_hidden ? hidden(shown) : shown;
}

/* What is longer is not remembered. */
#define LONGEST_PATH 256

/* Paths that were seen lately, by their hash: most states have the same ones, and a text that is there need not be
 * made, nor hashed again where it is looked up. */
#define PATHS 1024
static PyObject *seen_paths[PATHS];

static uint32_t slot_of(const struct text *text)
{
    uint64_t hash = (uint64_t)text->size, part;
    const char *at = text->start, *end = at + text->size;
    for (; end - at >= 8; at += 8) {
        memcpy(&part, at, 8);
        hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    part = 0;
    memcpy(&part, at, (size_t)(end - at));
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 40) & (PATHS - 1);
}

/* A new reference; NULL with an exception for what is not valid UTF-8. */
static PyObject *path_of(const struct text *text)
{
    PyObject **seen = &seen_paths[slot_of(text)];
    if (*seen != NULL && PyUnicode_GET_LENGTH(*seen) == text->size &&
        !memcmp(PyUnicode_1BYTE_DATA(*seen), text->start, (size_t)text->size)) {
        return Py_NewRef(*seen);
    }
    PyObject *path = PyUnicode_DecodeUTF8(text->start, text->size, NULL);
    if (path != NULL && PyUnicode_IS_ASCII(path) && text->size <= LONGEST_PATH) {
        Py_XSETREF(*seen, Py_NewRef(path));
    }
    return path;
}

static int set_field(PyObject *fields, const struct entry *entry, struct asked *asked)
{
    PyObject *path = path_of(&entry->path);
    PyObject *value = path == NULL ? NULL : field(entry, path, asked);
    int failed = value == NULL || (value != Py_None && PyDict_SetItem(fields, path, value));
    Py_XDECREF(path);
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* Whether no byte of a state says by itself that it is damaged: 1, 0 for a control character or what is not UTF-8, or -1
 * with an exception. */
static int is_clean(struct text json)
{
    unsigned char all = 0;
    bool has_control = false;
    for (Py_ssize_t each = 0; each < json.size; each++) {
        unsigned char character = (unsigned char)json.start[each];
        all |= character;
        has_control |= character < ' ';
    }
    if (has_control || all < 128) {
        return !has_control;
    }
    PyObject *text = PyUnicode_DecodeUTF8(json.start, json.size, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return 0;
    }
    Py_XDECREF(text);
    return text == NULL ? -1 : 1;
}

static bool is_null(const struct text *value)
{
    return value->size == 4 && !memcmp(value->start, "null", 4);
}

/* The registers of some states' join in room of their own, since whom the caller asks may join others; NULL where the
 * reference has to say, or with an exception. */
static struct entry *registers_of(PyObject *states, int *size)
{
    struct join *join = room_to_join();
    Py_ssize_t number = PyTuple_GET_SIZE(states);
    for (Py_ssize_t each = 0; each < number; each++) {
        struct text json = json_of(PyTuple_GET_ITEM(states, each), HEADER);
        if (is_clean(json) != 1 || !join_next(join, each, json)) {
            return NULL;
        }
    }
    const struct state *joined = number == 1 ? &join->sides[0] : &join->joined;
    size_t bytes = (size_t)joined->registers_size * sizeof *joined->registers;
    struct entry *made = PyMem_Malloc(bytes);
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(made, joined->registers, bytes);
    *size = joined->registers_size;
    return made;
}

PyDoc_STRVAR(fields_doc, "fields(states, is_indexable, odd): what the index may know of the join of some states, a tuple, by path;\n"
                         "odd(kind, json) says what stands for a value that is no plain scalar. None for the reference to say.");

static PyObject *fields(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 3)) {
        return NULL;
    }
    PyObject *states = arguments[0];
    if (!PyTuple_CheckExact(states) || !PyTuple_GET_SIZE(states)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of states is needed");
        return NULL;
    }
    if (!are_bytes(((PyTupleObject *)states)->ob_item, PyTuple_GET_SIZE(states))) {
        return NULL;
    }
    int size = 0;
    struct entry *registers = registers_of(states, &size);
    if (registers == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    for (int each = 0; each < size; each++) {
        if (registers[each].kind == DELETED && !is_null(&registers[each].value)) {
            PyMem_Free(registers);
            Py_RETURN_NONE;
        }
    }
    struct asked asked = {arguments[1], arguments[2], false};
    PyObject *made = PyDict_New();
    for (int each = 0; made != NULL && each < size; each++) {
        if (registers[each].kind != DELETED && set_field(made, &registers[each], &asked)) {
            Py_CLEAR(made);
        }
    }
    PyMem_Free(registers);
    /* Text that is none the reference finds damaged; what those that were asked raise is theirs. */
    if (made == NULL && !asked.has_raised && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return made;
}
