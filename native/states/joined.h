/* merge.codec.encode: joined states are written. */
#pragma once

#include "joining.h"

static char *copied(char *end, const char *bytes, Py_ssize_t size)
{
    memcpy(end, bytes, (size_t)size);
    return end + size;
}

/* A place is below 128. */
static char *put_place(char *end, int place)
{
    if (place >= 100) {
        *end++ = '1';
        place -= 100;
        *end++ = (char)('0' + place / 10);
    }
    else if (place >= 10) {
        *end++ = (char)('0' + place / 10);
    }
    *end++ = (char)('0' + place % 10);
    return end;
}

static char *put_key(char *end, char before, const struct text *key)
{
    *end++ = before;
    *end++ = '"';
    end = copied(end, key->start, key->size);
    return copied(end, "\":", 2);
}

static char *put_origins(char *end, struct join *join)
{
    place_origins(join);
    end = copied(end, "[[", 2);
    for (int rank = 0; rank < join->ranked_size; rank++) {
        if (join->places[rank] >= 0) {
            if (join->places[rank]) {
                *end++ = ',';
            }
            end = copied(end, join->ranked[rank]->whole.start, join->ranked[rank]->whole.size);
        }
    }
    return copied(end, "],", 2);
}

static char *put_registers(char *end, const struct join *join)
{
    const struct state *joined = &join->joined;
    if (!joined->registers_size) {
        *end++ = '{';
    }
    for (int each = 0; each < joined->registers_size; each++) {
        const struct entry *entry = &joined->registers[each];
        char kind[] = {',', (char)('0' + entry->kind), ','};
        end = put_key(end, each ? ',' : '{', &entry->path);
        *end++ = '[';
        end = put_place(end, join->places[entry->origin]);
        end = copied(end, kind, sizeof kind);
        end = copied(end, entry->value.start, entry->value.size);
        *end++ = ']';
    }
    return copied(end, "},[],", 5);
}

static char *put_identifiers(char *end, const struct join *join)
{
    const struct state *joined = &join->joined;
    if (!joined->identifiers_size) {
        *end++ = '{';
    }
    for (int each = 0; each < joined->identifiers_size; each++) {
        end = put_key(end, each ? ',' : '{', &joined->identifiers[each].name);
        end = put_place(end, join->places[joined->identifiers[each].origin]);
    }
    return copied(end, "},", 2);
}

static char *put_sightings(char *end, const struct join *join)
{
    const struct state *joined = &join->joined;
    if (!joined->sightings_size) {
        *end++ = '{';
    }
    for (int each = 0; each < joined->sightings_size; each++) {
        const struct sighting *sighting = &joined->sightings[each];
        end = put_key(end, each ? ',' : '{', &sighting->key);
        *end++ = '[';
        end = put_place(end, join->places[sighting->oldest]);
        *end++ = ',';
        end = put_place(end, join->places[sighting->newest]);
        *end++ = ']';
    }
    return copied(end, "}]", 2);
}

/* `all` is how many bytes the states have that were joined. */
static PyObject *write_joined(struct join *join, Py_ssize_t all)
{
    /* Nothing is written that is not in one of them, but for places of up to three digits in place of one. */
    const struct state *joined = &join->joined;
    Py_ssize_t most = all + 2 * (joined->registers_size + joined->identifiers_size + 2 * joined->sightings_size) + 16;
    PyObject *made = PyBytes_FromStringAndSize(NULL, most);
    if (made == NULL) {
        return NULL;
    }
    char *end = put_origins(PyBytes_AS_STRING(made), join);
    end = put_registers(end, join);
    end = put_identifiers(end, join);
    end = put_sightings(end, join);
    _PyBytes_Resize(&made, end - PyBytes_AS_STRING(made));
    return made;
}

/* One more state after `joined` others. */
static bool join_next(struct join *join, Py_ssize_t joined, struct text json)
{
    return joined ? join_one(join, joined - 1, json) : read_state(json, &join->sides[0]);
}

PyDoc_STRVAR(join_all_doc, "join_all(bodies): the JSON of the join of several states, a tuple of what is behind their\n"
                           "headers; None for the reference to say.");

static PyObject *join_all(PyObject *Py_UNUSED(module), PyObject *bodies)
{
    if (!PyTuple_CheckExact(bodies) || PyTuple_GET_SIZE(bodies) < 2) {
        PyErr_SetString(PyExc_TypeError, "a tuple of two states or more is needed");
        return NULL;
    }
    Py_ssize_t number = PyTuple_GET_SIZE(bodies), all = 0;
    if (!are_bytes(((PyTupleObject *)bodies)->ob_item, number)) {
        return NULL;
    }
    struct join *join = room_to_join();
    for (Py_ssize_t each = 0; each < number; each++) {
        struct text json = json_of(PyTuple_GET_ITEM(bodies, each), 0);
        if (!join_next(join, each, json)) {
            Py_RETURN_NONE;
        }
        all += json.size;
    }
    return write_joined(join, all);
}
