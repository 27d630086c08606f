/* ingestion.stages.aggregate.Aggregator: what EventStates has of each fragment is joined and framed. */
#pragma once

#include "event_states.h"
#include "joined.h"

/* States that become one in `join`. Of one alone nothing is read. */
struct joining {
    struct join *join;
    Py_ssize_t number, bytes;
    bool is_common;
    struct text first;
};

static void take_in(struct joining *joining, struct text json)
{
    if (!joining->number) {
        joining->first = json;
    }
    else if (joining->number == 1) {
        joining->is_common = join_next(joining->join, 0, joining->first) && join_next(joining->join, 1, json);
    }
    else {
        joining->is_common = joining->is_common && join_next(joining->join, joining->number, json);
    }
    joining->bytes += json.size;
    joining->number++;
}

static void take_in_events(struct joining *joining, const EventStates *states, Py_ssize_t place)
{
    for (; place != NONE; place = states->events[place].next) {
        take_in(joining, json_of_event(states, &states->events[place]));
    }
}

/* Their JSON; NULL without an exception for the reference to say. */
static PyObject *joined_json(const struct joining *joining)
{
    if (joining->number == 1) {
        return PyBytes_FromStringAndSize(joining->first.start, joining->first.size);
    }
    return joining->number && joining->is_common ? write_joined(joining->join, joining->bytes) : NULL;
}

/* Whether what is there of a fragment is of the common form. */
static bool is_common_present(PyObject *present)
{
    return PyBytes_CheckExact(present) && PyBytes_AS_STRING(present)[0] == FORMAT;
}

/* merge.codec.framed; takes over `json`, which may be NULL. */
static PyObject *framed(const EventStates *states, PyObject *json)
{
    if (json == NULL) {
        return NULL;
    }
    PyObject *arguments[] = {json, states->begun};
    PyObject *checksum = PyObject_Vectorcall(states->crc32, arguments, 2, NULL);
    unsigned long number = checksum == NULL ? 0 : PyLong_AsUnsignedLong(checksum);
    Py_XDECREF(checksum);
    PyObject *made = PyErr_Occurred() ? NULL : PyBytes_FromStringAndSize(NULL, HEADER + PyBytes_GET_SIZE(json));
    if (made != NULL) {
        char *bytes = PyBytes_AS_STRING(made);
        bytes[0] = FORMAT;
        for (int place = 1; place < HEADER; place++) {
            bytes[place] = (char)(number >> 8 * (HEADER - 1 - place) & 0xff);
        }
        memcpy(bytes + HEADER, PyBytes_AS_STRING(json), (size_t)PyBytes_GET_SIZE(json));
    }
    Py_DECREF(json);
    return made;
}

/* Joins one fragment: 1, 0 for the reference to do, -1 with an exception. */
static int join_fragment(const EventStates *states, size_t place, PyObject *fragments)
{
    /* The room may be another one when the checksum is computed. */
    struct kept_fragment fragment = states->fragments[place];
    struct joining joining = {.join = room_to_join()};
    PyObject *present = PyDict_GetItemWithError(fragments, fragment.id);
    if (present == NULL ? PyErr_Occurred() != NULL : !is_common_present(present)) {
        return present == NULL ? -1 : 0;
    }
    take_in_events(&joining, states, fragment.first);
    if (present != NULL) {
        /* Last, as each join walks all that was joined so far: mostly it is the widest. */
        take_in(&joining, json_of(present, HEADER));
    }
    PyObject *made = framed(states, joined_json(&joining));
    if (made == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int failed = PyDict_SetItem(fragments, fragment.id, made);
    Py_DECREF(made);
    return failed ? -1 : 1;
}

PyDoc_STRVAR(join_into_doc, "join_into(fragments, excluded): joins the events of each fragment that is not a key of the dict\n"
                            "`excluded`, and the bytes that it has in `fragments`, into those; gives a list of the ids for\n"
                            "which the reference has to: those with something else than bytes there, and odd ones.");

static PyObject *join_into(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    const EventStates *states = (EventStates *)self;
    if (!check_arguments(given, 2) || !check_dict(arguments[0]) || !check_dict(arguments[1])) {
        return NULL;
    }
    PyObject *left = PyList_New(0);
    for (size_t each = 0; left != NULL && each < states->fragments_size; each++) {
        PyObject *id = states->fragments[each].id;
        int done = states->fragments[each].first == NONE ? 1 : PyDict_Contains(arguments[1], id);
        if (!done) {
            done = join_fragment(states, each, arguments[0]);
        }
        if (done < 0 || (!done && PyList_Append(left, id))) {
            Py_CLEAR(left);
        }
    }
    return left;
}

PyDoc_STRVAR(join_with_doc, "join_with(fragment_id, parts, present): the bytes of the join of a fragment's events, the states\n"
                            "in a list, given as their JSON, and what is `present` of it as bytes, or None; None for the\n"
                            "reference to say.");

static PyObject *join_with(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    const EventStates *states = (EventStates *)self;
    if (!check_arguments(given, 3)) {
        return NULL;
    }
    PyObject *parts = arguments[1], *present = arguments[2];
    if (!PyList_CheckExact(parts)) {
        PyErr_SetString(PyExc_TypeError, "a list of parts is needed");
        return NULL;
    }
    if (!are_bytes(((PyListObject *)parts)->ob_item, PyList_GET_SIZE(parts))) {
        return NULL;
    }
    Py_ssize_t number = fragment_place(states, arguments[0]);
    if ((number == NONE && PyErr_Occurred()) || (present != Py_None && !is_common_present(present))) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    struct joining joining = {.join = room_to_join()};
    take_in_events(&joining, states, number == NONE ? NONE : states->fragments[number].first);
    for (Py_ssize_t each = 0; each < PyList_GET_SIZE(parts); each++) {
        take_in(&joining, json_of(PyList_GET_ITEM(parts, each), 0));
    }
    if (present != Py_None) {
        take_in(&joining, json_of(present, HEADER));
    }
    PyObject *made = framed(states, joined_json(&joining));
    return made != NULL || PyErr_Occurred() ? made : Py_NewRef(Py_None);
}

static PyObject *new_event_states(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    PyObject *crc32, *begun;
    if (!PyArg_ParseTuple(arguments, "OO!:EventStates", &crc32, &PyLong_Type, &begun)) {
        return NULL;
    }
    EventStates *made = (EventStates *)type->tp_alloc(type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->crc32 = Py_NewRef(crc32);
    made->begun = Py_NewRef(begun);
    made->numbers = PyDict_New();
    if (made->numbers == NULL) {
        Py_CLEAR(made);
    }
    return (PyObject *)made;
}

static void drop_event_states(PyObject *self)
{
    EventStates *states = (EventStates *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (size_t each = 0; each < states->fragments_size; each++) {
        Py_DECREF(states->fragments[each].id);
    }
    Py_XDECREF(states->numbers);
    Py_DECREF(states->crc32);
    Py_DECREF(states->begun);
    PyMem_RawFree(states->fragments);
    PyMem_RawFree(states->events);
    PyMem_RawFree(states->bytes);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef event_states_methods[] = {
    {"add", (PyCFunction)(void (*)(void))add, METH_FASTCALL, add_doc},
    {"fragment_ids", fragment_ids, METH_NOARGS, fragment_ids_doc},
    {"take", take_events, METH_O, take_doc},
    {"join_into", (PyCFunction)(void (*)(void))join_into, METH_FASTCALL, join_into_doc},
    {"join_with", (PyCFunction)(void (*)(void))join_with, METH_FASTCALL, join_with_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(event_states_doc, "EventStates(crc32, begun): the states of events by fragment, in one piece of memory.\n"
                               "`crc32(json, begun)` is the checksum of a state.");

static PyType_Slot event_states_slots[] = {
    {Py_tp_doc, (void *)event_states_doc},
    {Py_tp_new, new_event_states},
    {Py_tp_dealloc, drop_event_states},
    {Py_tp_methods, event_states_methods},
    {0, NULL},
};

static PyType_Spec event_states_spec = {
    "idgraph.native._states.EventStates", sizeof(EventStates), 0, Py_TPFLAGS_DEFAULT, event_states_slots,
};
