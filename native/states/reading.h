/* The bytes of a state of the common form, read: no byte is trusted. */
#pragma once

#include "../objects.h"

#include <string.h>

/* Fragments of people have some ten of each; others go to the reference. An event may have 10,000 leaves. */
#define MOST_ORIGINS 64
#define MOST_IDENTIFIERS 32
#define MOST_SIGHTINGS 64
#define MOST_REGISTERS 16384
#define DEEPEST 32
/* Before the JSON of a state stand its format and its checksum, which the caller has looked at. */
#define HEADER 5
#define FORMAT 1
enum { DELETED, PLAIN, SEALED, KINDS };

struct text {
    const char *start;
    Py_ssize_t size;
};

struct origin {
    long long priority, ordinal, version;
    struct text source, event, spec, whole;
};

/* `value` is JSON; `kind` is one of the first KINDS. */
struct entry {
    struct text path, value;
    int origin, kind;
};

struct named {
    struct text name;
    int origin;
};

/* What events showed together, with the oldest and the newest of them. */
struct sighting {
    struct text key;
    int oldest, newest;
};

struct state {
    int origins_size, registers_size, identifiers_size, sightings_size;
    struct origin origins[MOST_ORIGINS];
    struct named identifiers[MOST_IDENTIFIERS];
    struct sighting sightings[MOST_SIGHTINGS];
    struct entry registers[MOST_REGISTERS];
};

/* `end` is behind the last byte. */
struct reader {
    const char *at, *end;
};

static bool take(struct reader *reader, char expected)
{
    if (reader->at >= reader->end || *reader->at != expected) {
        return false;
    }
    reader->at++;
    return true;
}

static bool is_next(const struct reader *reader, char expected)
{
    return reader->at < reader->end && *reader->at == expected;
}

/* A number as JSON has it, of at most 18 digits, which 64 bits hold. */
static bool take_number(struct reader *reader, long long *number)
{
    bool is_negative = take(reader, '-');
    const char *start = reader->at;
    *number = 0;
    for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
        if (reader->at - start == 18) {
            return false;
        }
        *number = *number * 10 + (*reader->at - '0');
    }
    Py_ssize_t size = reader->at - start;
    if (!size || (*start == '0' && (size > 1 || is_negative))) {
        return false;
    }
    *number = is_negative ? -*number : *number;
    return true;
}

static bool take_place(struct reader *reader, int size, int *place)
{
    long long number;
    if (!take_number(reader, &number) || number < 0 || number >= size) {
        return false;
    }
    *place = (int)number;
    return true;
}

/* A text in quotes with nothing escaped in it: what is between them. */
static bool take_text(struct reader *reader, struct text *text)
{
    if (!take(reader, '"')) {
        return false;
    }
    const char *end = memchr(reader->at, '"', (size_t)(reader->end - reader->at));
    if (end == NULL || memchr(reader->at, '\\', (size_t)(end - reader->at)) != NULL) {
        return false;
    }
    *text = (struct text){reader->at, end - reader->at};
    reader->at = end + 1;
    return true;
}

static bool skip_quoted(struct reader *reader)
{
    const char *start = reader->at + 1, *quote = memchr(start, '"', (size_t)(reader->end - start));
    if (quote == NULL) {
        return false;
    }
    if (memchr(start, '\\', (size_t)(quote - start)) == NULL) {
        reader->at = quote + 1;
        return true;
    }
    for (reader->at++; reader->at < reader->end; reader->at++) {
        if (*reader->at == '\\') {
            reader->at++;
        }
        else if (*reader->at == '"') {
            reader->at++;
            return true;
        }
    }
    return false;
}

/* What stands behind a header of so many bytes. */
static struct text json_of(PyObject *data, Py_ssize_t header)
{
    Py_ssize_t size = PyBytes_GET_SIZE(data) - header;
    return (struct text){PyBytes_AS_STRING(data) + header, size < 0 ? 0 : size};
}

/* Any JSON value: all up to the comma or bracket that follows it. */
static bool take_value(struct reader *reader, struct text *value)
{
    const char *start = reader->at;
    int depth = 0;
    while (reader->at < reader->end) {
        char each = *reader->at;
        if (each == '"') {
            if (!skip_quoted(reader)) {
                return false;
            }
            continue;
        }
        if (!depth && (each == ',' || each == ']' || each == '}')) {
            break;
        }
        depth += each == '[' || each == '{';
        depth -= each == ']' || each == '}';
        reader->at++;
    }
    *value = (struct text){start, reader->at - start};
    return reader->at < reader->end && reader->at > start;
}

static int compare_texts(const struct text *one, const struct text *other)
{
    Py_ssize_t shorter = one->size < other->size ? one->size : other->size;
    int order = memcmp(one->start, other->start, (size_t)shorter);
    return order ? order : (one->size > other->size) - (one->size < other->size);
}

/* As Python compares two origins: texts in UTF-8 are in the order of their characters. */
static int compare_origins(const struct origin *one, const struct origin *other)
{
    int order = (one->priority > other->priority) - (one->priority < other->priority);
    order = order ? order : (one->ordinal > other->ordinal) - (one->ordinal < other->ordinal);
    order = order ? order : compare_texts(&one->source, &other->source);
    order = order ? order : compare_texts(&one->event, &other->event);
    order = order ? order : compare_texts(&one->spec, &other->spec);
    return order ? order : (one->version > other->version) - (one->version < other->version);
}

static bool read_origin(struct reader *reader, struct origin *origin)
{
    const char *start = reader->at;
    if (!take(reader, '[') || !take_number(reader, &origin->priority) || !take(reader, ',') ||
        !take_number(reader, &origin->ordinal) || !take(reader, ',') || !take_text(reader, &origin->source) ||
        !take(reader, ',') || !take_text(reader, &origin->event) || !take(reader, ',') ||
        !take_text(reader, &origin->spec) || !take(reader, ',') || !take_number(reader, &origin->version) ||
        !take(reader, ']')) {
        return false;
    }
    origin->whole = (struct text){start, reader->at - start};
    return true;
}

/* Into as many as MOST_ORIGINS; `found` is how many there are. */
static bool read_origins(struct reader *reader, struct origin *origins, int *found)
{
    *found = 0;
    if (!take(reader, '[')) {
        return false;
    }
    while (!is_next(reader, ']')) {
        int size = *found;
        if (size == MOST_ORIGINS || (size && !take(reader, ',')) || !read_origin(reader, &origins[size]) ||
            (size && compare_origins(&origins[size - 1], &origins[size]) >= 0)) {
            return false;
        }
        ++*found;
    }
    return take(reader, ']');
}

static bool read_register(struct reader *reader, const struct state *state, struct entry *entry)
{
    return take_text(reader, &entry->path) && take(reader, ':') && take(reader, '[') &&
           take_place(reader, state->origins_size, &entry->origin) && take(reader, ',') &&
           take_place(reader, KINDS, &entry->kind) && take(reader, ',') && take_value(reader, &entry->value) &&
           take(reader, ']');
}

static bool read_registers(struct reader *reader, struct state *state)
{
    state->registers_size = 0;
    if (!take(reader, '{')) {
        return false;
    }
    while (!is_next(reader, '}')) {
        int size = state->registers_size;
        struct entry *entry = state->registers + size;
        if (size == MOST_REGISTERS || (size && !take(reader, ',')) || !read_register(reader, state, entry) ||
            (size && compare_texts(&entry[-1].path, &entry->path) >= 0)) {
            return false;
        }
        state->registers_size++;
    }
    return take(reader, '}');
}

/* Into as many as MOST_IDENTIFIERS; `found` is how many there are. */
static bool read_identifiers(struct reader *reader, int origins_size, struct named *identifiers, int *found)
{
    *found = 0;
    if (!take(reader, '{')) {
        return false;
    }
    while (!is_next(reader, '}')) {
        int size = *found;
        struct named *named = &identifiers[size];
        if (size == MOST_IDENTIFIERS || (size && !take(reader, ',')) || !take_text(reader, &named->name) ||
            !take(reader, ':') || !take_place(reader, origins_size, &named->origin) ||
            (size && compare_texts(&named[-1].name, &named->name) >= 0)) {
            return false;
        }
        ++*found;
    }
    return take(reader, '}');
}

/* Into as many as MOST_SIGHTINGS; `found` is how many there are. */
static bool read_sightings(struct reader *reader, int origins_size, struct sighting *sightings, int *found)
{
    *found = 0;
    if (!take(reader, '{')) {
        return false;
    }
    while (!is_next(reader, '}')) {
        int size = *found;
        struct sighting *sighting = &sightings[size];
        if (size == MOST_SIGHTINGS || (size && !take(reader, ',')) || !take_text(reader, &sighting->key) ||
            !take(reader, ':') || !take(reader, '[') || !take_place(reader, origins_size, &sighting->oldest) ||
            !take(reader, ',') || !take_place(reader, origins_size, &sighting->newest) || !take(reader, ']') ||
            (size && compare_texts(&sighting[-1].key, &sighting->key) >= 0)) {
            return false;
        }
        ++*found;
    }
    return take(reader, '}');
}

/* Whether some path lies below another one: it begins with that and a dot. What begins alike stands together. */
static bool is_nested(const struct entry *registers, int size)
{
    const struct text *open[DEEPEST];
    int depth = 0;
    for (int each = 0; each < size; each++) {
        const struct text *path = &registers[each].path;
        while (depth && (open[depth - 1]->size >= path->size ||
                         memcmp(open[depth - 1]->start, path->start, (size_t)open[depth - 1]->size))) {
            depth--;
        }
        for (int above = 0; above < depth; above++) {
            if (path->start[open[above]->size] == '.') {
                return true;
            }
        }
        if (depth == DEEPEST) {
            return true;
        }
        open[depth++] = path;
    }
    return false;
}

/* Whether this is the JSON of a state of the common form: without markers, no path below another. */
static bool read_state(struct text json, struct state *state)
{
    struct reader reader = {json.start, json.start + json.size};
    return take(&reader, '[') && read_origins(&reader, state->origins, &state->origins_size) && take(&reader, ',') &&
           read_registers(&reader, state) && take(&reader, ',') && take(&reader, '[') && take(&reader, ']') &&
           take(&reader, ',') &&
           read_identifiers(&reader, state->origins_size, state->identifiers, &state->identifiers_size) &&
           take(&reader, ',') &&
           read_sightings(&reader, state->origins_size, state->sightings, &state->sightings_size) &&
           take(&reader, ']') &&
           reader.at == reader.end && !is_nested(state->registers, state->registers_size);
}
