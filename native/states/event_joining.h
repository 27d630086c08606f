/* ingestion.combining.Combiner: what EventStates has of each fragment is joined and framed. */
#pragma once

#include "event_states.h"
#include "joined.h"

/* The JSON of the join of a fragment's events and of what is `present` of it; NULL without an exception for the twin. */
static PyObject *joined_events(const EventStates *states, const struct kept_fragment *fragment, PyObject *present)
{
    const struct kept_event *event = &states->events[fragment->first];
    struct text json = json_of_event(states, event);
    if (present == NULL && event->next == NONE) {
        return PyBytes_FromStringAndSize(json.start, json.size);
    }
    struct join *join = room_to_join();
    Py_ssize_t all = json.size, joined = 0;
    bool is_common = read_state(present == NULL ? json : json_of(present, HEADER), &join->sides[0]);
    if (present != NULL) {
        all += PyBytes_GET_SIZE(present);
        is_common = is_common && join_one(join, joined++, json);
    }
    while (is_common && event->next != NONE) {
        event = &states->events[event->next];
        json = json_of_event(states, event);
        all += json.size;
        is_common = join_one(join, joined++, json);
    }
    return is_common ? write_joined(join, all) : NULL;
}

/* merge.codec.framed. */
static PyObject *framed(const EventStates *states, PyObject *json)
{
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
    return made;
}

/* Joins one fragment: 1, 0 for the twin to do, -1 with an exception. */
static int join_fragment(const EventStates *states, size_t place, PyObject *fragments)
{
    /* The room may be another one when the checksum is computed. */
    struct kept_fragment fragment = states->fragments[place];
    PyObject *present = PyDict_GetItemWithError(fragments, fragment.id);
    if (present == NULL ? PyErr_Occurred() != NULL
                        : !PyBytes_CheckExact(present) || PyBytes_AS_STRING(present)[0] != FORMAT) {
        return present == NULL ? -1 : 0;
    }
    PyObject *json = joined_events(states, &fragment, present);
    if (json == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *made = framed(states, json);
    Py_DECREF(json);
    int failed = made == NULL || PyDict_SetItem(fragments, fragment.id, made);
    Py_XDECREF(made);
    return failed ? -1 : 1;
}

PyDoc_STRVAR(join_into_doc, "join_into(fragments, excluded): joins the events of each fragment, and the bytes that it has in\n"
                            "`fragments`, into those; gives a list of those ids for which the twin has to: those in the\n"
                            "set `excluded`, those with something else than bytes there, and odd ones.");

static PyObject *join_into(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    const EventStates *states = (EventStates *)self;
    if (!check_arguments(given, 2) || !check_dict(arguments[0])) {
        return NULL;
    }
    if (!PyAnySet_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "a set of ids is needed");
        return NULL;
    }
    PyObject *left = PyList_New(0);
    for (size_t each = 0; left != NULL && each < states->fragments_size; each++) {
        if (states->fragments[each].first == NONE) {
            continue;
        }
        int is_excluded = PySet_Contains(arguments[1], states->fragments[each].id);
        int done = is_excluded < 0 ? -1 : is_excluded ? 0 : join_fragment(states, each, arguments[0]);
        if (done < 0 || (!done && PyList_Append(left, states->fragments[each].id))) {
            Py_CLEAR(left);
        }
    }
    return left;
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
    "model._states.EventStates", sizeof(EventStates), 0, Py_TPFLAGS_DEFAULT, event_states_slots,
};
