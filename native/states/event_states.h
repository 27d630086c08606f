/* ingestion.stages.map_output.EventStates: the states of events by fragment, in one piece of memory. An object for each would
 * be cold again when its fragment is joined. */
#pragma once

#include "reading.h"

#define NONE (-1)

/* `next` is the place of the fragment's next event, or NONE. */
struct kept_event {
    long long time;
    size_t start;
    Py_ssize_t size, next;
    bool is_timed;
};

/* `first` is NONE where its events were taken out. */
struct kept_fragment {
    PyObject *id;
    Py_ssize_t first, last;
};

/* `numbers` gives the place of each id among `fragments`; `crc32(json, begun)` is the checksum of a state. */
typedef struct {
    PyObject ob_base;
    PyObject *numbers, *crc32, *begun;
    struct kept_fragment *fragments;
    struct kept_event *events;
    char *bytes;
    size_t fragments_size, fragments_room, events_size, events_room, size, room;
} EventStates;

/* Room for `wanted` more items of a size; false with an exception. */
static bool make_room(void **items, size_t item, size_t size, size_t *room, size_t wanted)
{
    if (wanted <= *room - size) {
        return true;
    }
    size_t more = *room * 2 + wanted + 1024;
    void *made = more > PY_SSIZE_T_MAX / item ? NULL : PyMem_RawRealloc(*items, more * item);
    if (made == NULL) {
        PyErr_NoMemory();
        return false;
    }
    *items = made;
    *room = more;
    return true;
}

/* The place of a fragment: NONE for one that is not known, or with an exception. */
static Py_ssize_t fragment_place(const EventStates *states, PyObject *id)
{
    PyObject *number = PyDict_GetItemWithError(states->numbers, id);
    return number == NULL ? NONE : PyLong_AsSsize_t(number);
}

static Py_ssize_t add_fragment(EventStates *states, PyObject *id)
{
    if (!make_room((void **)&states->fragments, sizeof *states->fragments, states->fragments_size,
                   &states->fragments_room, 1)) {
        return NONE;
    }
    Py_ssize_t place = (Py_ssize_t)states->fragments_size;
    PyObject *number = PyLong_FromSsize_t(place);
    int failed = number == NULL || PyDict_SetItem(states->numbers, id, number);
    Py_XDECREF(number);
    if (failed) {
        return NONE;
    }
    states->fragments[place] = (struct kept_fragment){Py_NewRef(id), NONE, NONE};
    states->fragments_size++;
    return place;
}

static void append(EventStates *states, Py_ssize_t number, struct kept_event event, const char *bytes)
{
    struct kept_fragment *fragment = &states->fragments[number];
    Py_ssize_t place = (Py_ssize_t)states->events_size++;
    event.start = states->size;
    event.next = NONE;
    states->events[place] = event;
    if (event.size > 0) {
        memcpy(states->bytes + states->size, bytes, (size_t)event.size);
    }
    states->size += (size_t)event.size;
    if (fragment->first == NONE) {
        fragment->first = place;
    }
    else {
        states->events[fragment->last].next = place;
    }
    fragment->last = place;
}

PyDoc_STRVAR(add_doc, "add(fragment_id, time, state): keeps the state of one more event.");

static PyObject *add(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    EventStates *states = (EventStates *)self;
    if (!check_arguments(given, 3) || !are_bytes(arguments + 2, 1)) {
        return NULL;
    }
    if (!PyUnicode_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "an id that is text is needed");
        return NULL;
    }
    struct kept_event event = {0, 0, PyBytes_GET_SIZE(arguments[2]), NONE, arguments[1] != Py_None};
    if (event.is_timed && (event.time = PyLong_AsLongLong(arguments[1])) == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Py_ssize_t number = fragment_place(states, arguments[0]);
    if (number == NONE && !PyErr_Occurred()) {
        number = add_fragment(states, arguments[0]);
    }
    if (number == NONE ||
        !make_room((void **)&states->events, sizeof event, states->events_size, &states->events_room, 1) ||
        !make_room((void **)&states->bytes, 1, states->size, &states->room, (size_t)event.size)) {
        return NULL;
    }
    append(states, number, event, PyBytes_AS_STRING(arguments[2]));
    Py_RETURN_NONE;
}

PyDoc_STRVAR(fragment_ids_doc, "fragment_ids(): of all events, each once.");

static PyObject *fragment_ids(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    const EventStates *states = (EventStates *)self;
    PyObject *made = PyList_New(0);
    for (size_t each = 0; made != NULL && each < states->fragments_size; each++) {
        if (states->fragments[each].first != NONE && PyList_Append(made, states->fragments[each].id)) {
            Py_CLEAR(made);
        }
    }
    return made;
}

static struct text json_of_event(const EventStates *states, const struct kept_event *event)
{
    return (struct text){states->bytes + event->start, event->size};
}

/* The event as (time or None, state). */
static PyObject *taken_out(const EventStates *states, Py_ssize_t place)
{
    struct kept_event event = states->events[place];
    struct text json = json_of_event(states, &event);
    /* First: to make a tuple may run a finalizer, and what one adds moves the bytes. */
    PyObject *state = PyBytes_FromStringAndSize(json.start, json.size);
    if (state == NULL) {
        return NULL;
    }
    return event.is_timed ? Py_BuildValue("(LN)", event.time, state) : Py_BuildValue("(ON)", Py_None, state);
}

PyDoc_STRVAR(take_doc, "take(fragment_id): takes out the events of a fragment, a list of (time, state).");

static PyObject *take_events(PyObject *self, PyObject *id)
{
    EventStates *states = (EventStates *)self;
    PyObject *made = PyList_New(0);
    Py_ssize_t number = made == NULL ? NONE : fragment_place(states, id);
    Py_ssize_t place = number == NONE ? NONE : states->fragments[number].first;
    while (made != NULL && place != NONE) {
        PyObject *one = taken_out(states, place);
        if (one == NULL || PyList_Append(made, one)) {
            Py_CLEAR(made);
        }
        Py_XDECREF(one);
        place = states->events[place].next;
    }
    if (made != NULL && PyErr_Occurred()) {
        Py_CLEAR(made);
    }
    if (made != NULL && number != NONE) {
        states->fragments[number].first = NONE;
    }
    return made;
}
