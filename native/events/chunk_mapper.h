/* ingestion.stages.map.EventMapper.map_chunk: the records of a chunk become events of fragments. It calls what maps
 * one event, step by step; a record at which a step fails, or finds what is not of the common form, is the reference's. */
#pragma once

#include "reader.h"

enum { RECORD_TYPE, DECRYPTED_TYPE, ORIGIN_TYPE, LEAVES_TYPE, MAPPED_EVENT_TYPE, AWAY_TYPE, TYPES };
enum { OF_TYPES, READERS, ROUTES, FIND_ROUTE, PROTECT, LEAVES, TAKE_BACK, TIMED, EARLIEST, CHUNK_MAPPER_PARTS };
/* Of a route: the spec's function, its reference, signs: an event id with none of them is not hashed, and what gives the
 * entries that an event leaves in timelines, or None. */
enum { MAP, SPEC_REF, SIGNS, TIMELINE, ROUTE_PARTS };
/* What idgraph.native's `state` is given beside an event's own, and how many leaves an event may have. */
enum { STATE, ROOT, SKIPPED, POLICIES, WALK_REST, ENCODE, MOST_LEAVES, LEAVES_PARTS };
enum { PLAIN_LEAVES, TO_SEAL, UNEXPECTED, FOUND_PARTS };

/* One call for a chunk. `found` is a Leaves without anything in it, for the next event; `add_plain` is the `add` of an
 * EventStates, `others` a dict of lists by fragment id, and `to_seal` one whose keys are ids of fragments. */
struct gathering {
    PyObject *parts, *add_plain, *others, *to_seal, *rest, *found;
    long long latest, earliest;
    Py_ssize_t bytes, skipped;
};

static PyObject *type_of(const struct gathering *gathering, int type)
{
    return PyTuple_GET_ITEM(PyTuple_GET_ITEM(gathering->parts, OF_TYPES), type);
}

static bool is_tuple_of(PyObject *object, Py_ssize_t size)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == size;
}

/* Leaves({}, [], []). */
static PyObject *new_found(const struct gathering *gathering)
{
    PyObject *fields[] = {PyDict_New(), PyList_New(0), PyList_New(0)}, *made = NULL;
    if (fields[0] != NULL && fields[1] != NULL && fields[2] != NULL) {
        made = new_tuple((PyTypeObject *)type_of(gathering, LEAVES_TYPE), fields, FOUND_PARTS);
    }
    drop_all(fields, FOUND_PARTS);
    return made;
}

/* The route of an event, held; NULL where the reference has to find out, or with an exception. */
static PyObject *route_of(const struct gathering *gathering, PyObject *event)
{
    PyObject *names[] = {PyTuple_GET_ITEM(event, SOURCE_NAME), PyTuple_GET_ITEM(event, TYPE)};
    PyObject *key = PyTuple_Pack(2, names[0], names[1]);
    if (key == NULL) {
        return NULL;
    }
    PyObject *route = Py_XNewRef(PyDict_GetItemWithError(PyTuple_GET_ITEM(gathering->parts, ROUTES), key));
    Py_DECREF(key);
    if (route == NULL && !PyErr_Occurred()) {
        route = PyObject_Vectorcall(PyTuple_GET_ITEM(gathering->parts, FIND_ROUTE), names, 2, NULL);
    }
    if (route != NULL && !(PyTuple_CheckExact(route) && PyTuple_GET_SIZE(route) == ROUTE_PARTS &&
                           PyTuple_CheckExact(PyTuple_GET_ITEM(route, SIGNS)))) {
        Py_CLEAR(route);
    }
    return route;
}

/* Smaller ordinals are no times: `COUNTERS` of the reference. */
#define FIRST_TIME 100000000

/* Whether an event id is stored as it is, and its ordinal is none of the future or of long ago: 1, 0 for the reference to
 * say, or -1. */
static int is_common_stamp(const struct gathering *gathering, PyObject *record, PyObject *stamp, PyObject *signs)
{
    if (!is_tuple_of(stamp, 4) || !is_short_integer(PyTuple_GET_ITEM(stamp, 1)) ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(stamp, 3))) {
        return 0;
    }
    long long ordinal = PyLong_AsLongLong(PyTuple_GET_ITEM(stamp, 1));
    if (ordinal > gathering->latest) {
        return 0;
    }
    if (ordinal < gathering->earliest && (ordinal < 0 || ordinal >= FIRST_TIME)) {
        int is_timed = PySet_Contains(PyTuple_GET_ITEM(gathering->parts, TIMED), PyTuple_GET_ITEM(record, 0));
        if (is_timed) {
            return is_timed < 0 ? -1 : 0;
        }
    }
    int found = 0;
    for (Py_ssize_t each = 0; !found && each < PyTuple_GET_SIZE(signs); each++) {
        found = PyUnicode_Contains(PyTuple_GET_ITEM(stamp, 3), PyTuple_GET_ITEM(signs, each));
    }
    return found < 0 ? -1 : !found;
}

/* Characters of an id that surely has no more bytes than stores take: `_SURELY_SHORT` of the reference. */
#define SURELY_SHORT 512

/* The text form of the identifier that names the fragment; NULL where the reference has to, or with an exception. */
static PyObject *fragment_of(PyObject *identifiers)
{
    PyObject *first = PyTuple_CheckExact(identifiers) && PyTuple_GET_SIZE(identifiers) > 0
                          ? PyTuple_GET_ITEM(identifiers, 0)
                          : NULL;
    if (first == NULL || !is_tuple_of(first, 2) || !PyUnicode_CheckExact(PyTuple_GET_ITEM(first, 0)) ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(first, 1))) {
        return NULL;
    }
    PyObject *type = PyTuple_GET_ITEM(first, 0), *value = PyTuple_GET_ITEM(first, 1);
    if (PyUnicode_IS_READY(type) && PyUnicode_IS_READY(value) &&
        PyUnicode_GET_LENGTH(type) + 1 + PyUnicode_GET_LENGTH(value) > SURELY_SHORT) {
        return NULL;
    }
    if (!PyUnicode_IS_READY(type) || !PyUnicode_IS_READY(value) || !PyUnicode_IS_ASCII(type) ||
        !PyUnicode_IS_ASCII(value)) {
        return PyUnicode_FromFormat("%U:%U", type, value);
    }
    Py_ssize_t size = PyUnicode_GET_LENGTH(type), rest = PyUnicode_GET_LENGTH(value);
    PyObject *made = PyUnicode_New(size + 1 + rest, 127);
    if (made != NULL) {
        Py_UCS1 *characters = PyUnicode_1BYTE_DATA(made);
        memcpy(characters, PyUnicode_1BYTE_DATA(type), (size_t)size);
        characters[size] = ':';
        memcpy(characters + size + 1, PyUnicode_1BYTE_DATA(value), (size_t)rest);
    }
    return made;
}

/* Appends to the list of a fragment. */
static int append_to(PyObject *lists, PyObject *fragment_id, PyObject *event)
{
    PyObject *list = PyDict_GetItemWithError(lists, fragment_id);
    if (list != NULL) {
        return PyList_Append(list, event);
    }
    list = PyErr_Occurred() ? NULL : PyList_New(1);
    if (list == NULL) {
        return -1;
    }
    PyList_SET_ITEM(list, 0, Py_NewRef(event));
    int failed = PyDict_SetItem(lists, fragment_id, list);
    Py_DECREF(list);
    return failed;
}

/* What one event is, step by step; all held. */
struct steps {
    PyObject *event, *route, *mapped, *identifiers, *origin, *fragment_id, *state, *timeline;
};

static void drop_steps(struct steps *steps)
{
    Py_XDECREF(steps->event);
    Py_XDECREF(steps->route);
    Py_XDECREF(steps->mapped);
    Py_XDECREF(steps->identifiers);
    Py_XDECREF(steps->origin);
    Py_XDECREF(steps->fragment_id);
    Py_XDECREF(steps->state);
    Py_XDECREF(steps->timeline);
}

/* Up to the leaves: 1, 0 where the reference has to or with an exception, 2 for an event that maps to nothing. */
static int take_steps(const struct gathering *gathering, PyObject *record, struct steps *steps)
{
    PyObject *parts = gathering->parts;
    PyObject *reader = PyDict_GetItemWithError(PyTuple_GET_ITEM(parts, READERS), PyTuple_GET_ITEM(record, 0));
    steps->event = reader == NULL ? NULL : PyObject_CallOneArg(reader, record);
    if (steps->event == NULL || !is_tuple_of(steps->event, FIELDS) ||
        (steps->route = route_of(gathering, steps->event)) == NULL) {
        return 0;
    }
    steps->mapped = PyObject_CallOneArg(PyTuple_GET_ITEM(steps->route, MAP), steps->event);
    if (steps->mapped == Py_None) {
        return 2;
    }
    if (steps->mapped == NULL || !is_tuple_of(steps->mapped, 3)) {
        return 0;
    }
    PyObject *stamp = PyTuple_GET_ITEM(steps->mapped, 0);
    if (is_common_stamp(gathering, record, stamp, PyTuple_GET_ITEM(steps->route, SIGNS)) != 1) {
        return 0;
    }
    steps->identifiers = PyObject_CallOneArg(PyTuple_GET_ITEM(parts, PROTECT), PyTuple_GET_ITEM(steps->mapped, 1));
    steps->fragment_id = steps->identifiers == NULL ? NULL : fragment_of(steps->identifiers);
    if (steps->fragment_id == NULL) {
        return 0;
    }
    PyObject *fields[] = {stamp, PyTuple_GET_ITEM(steps->route, SPEC_REF)};
    steps->origin = new_tuple((PyTypeObject *)type_of(gathering, ORIGIN_TYPE), fields, 2);
    return steps->origin != NULL;
}

/* The event's leaves in `found`, and its state: 1, 0 where the reference has to or with an exception. */
static int take_leaves(const struct gathering *gathering, struct steps *steps)
{
    PyObject *leaves = PyTuple_GET_ITEM(gathering->parts, LEAVES), *found = gathering->found;
    PyObject *arguments[] = {
        PyTuple_GET_ITEM(leaves, ROOT), PyTuple_GET_ITEM(steps->mapped, 2), PyTuple_GET_ITEM(leaves, SKIPPED),
        steps->origin, steps->identifiers, PyTuple_GET_ITEM(leaves, POLICIES),
        found, PyTuple_GET_ITEM(found, PLAIN_LEAVES), PyTuple_GET_ITEM(found, TO_SEAL),
        PyTuple_GET_ITEM(leaves, WALK_REST), PyTuple_GET_ITEM(leaves, ENCODE),
    };
    steps->state = PyObject_Vectorcall(PyTuple_GET_ITEM(leaves, STATE), arguments, 11, NULL);
    Py_ssize_t size = PyDict_GET_SIZE(PyTuple_GET_ITEM(found, PLAIN_LEAVES)) +
                      PyList_GET_SIZE(PyTuple_GET_ITEM(found, TO_SEAL));
    /* What no metadata knows the reference reports, or refuses. */
    return steps->state != NULL && !PyList_GET_SIZE(PyTuple_GET_ITEM(found, UNEXPECTED)) && size <= PyLong_AsSsize_t(PyTuple_GET_ITEM(leaves, MOST_LEAVES));
}

/* The entries that the event leaves: 1, 0 with an exception. */
static int take_timeline(const struct gathering *gathering, PyObject *record, struct steps *steps)
{
    PyObject *hook = PyTuple_GET_ITEM(steps->route, TIMELINE);
    if (hook == Py_None) {
        return 1;
    }
    PyObject *arguments[] = {PyTuple_GET_ITEM(steps->mapped, 2), steps->origin,
                             PyTuple_GET_ITEM(gathering->found, TO_SEAL), record};
    steps->timeline = PyObject_Vectorcall(hook, arguments, 4, NULL);
    if (steps->timeline != NULL && !PyDict_CheckExact(steps->timeline)) {
        Py_CLEAR(steps->timeline);
    }
    else if (steps->timeline == NULL) {
        return 0;
    }
    return 1;
}

/* Of an event with nothing to seal its state is all of it, and when it was if its source is timed. */
static int keep_plain(const struct gathering *gathering, PyObject *record, const struct steps *steps)
{
    int is_timed = PySet_Contains(PyTuple_GET_ITEM(gathering->parts, TIMED), PyTuple_GET_ITEM(record, 0));
    if (is_timed < 0) {
        return -1;
    }
    PyObject *ordinal = PyTuple_GET_ITEM(PyTuple_GET_ITEM(steps->mapped, 0), 1);
    PyObject *arguments[] = {steps->fragment_id, is_timed ? ordinal : Py_None, steps->state};
    PyObject *done = PyObject_Vectorcall(gathering->add_plain, arguments, 3, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int keep_other(const struct gathering *gathering, PyObject *record, const struct steps *steps)
{
    /* A spec that says something of its evidence, or takes events back, is not mapped here. */
    PyObject *evidence = PyUnicode_FromStringAndSize("", 0);
    PyObject *fields[] = {record, steps->fragment_id, steps->origin, steps->identifiers,
                          gathering->found, Py_None, steps->state, evidence, Py_None,
                          steps->timeline == NULL ? Py_None : steps->timeline};
    PyObject *made =
        evidence == NULL ? NULL : new_tuple((PyTypeObject *)type_of(gathering, MAPPED_EVENT_TYPE), fields, 10);
    Py_XDECREF(evidence);
    int failed = made == NULL || append_to(gathering->others, steps->fragment_id, made);
    Py_XDECREF(made);
    if (!failed && PyList_GET_SIZE(PyTuple_GET_ITEM(gathering->found, TO_SEAL))) {
        failed = PyDict_SetItem(gathering->to_seal, steps->fragment_id, Py_None);
    }
    return failed ? -1 : 0;
}

/* Puts the event where it belongs; `found` is then without anything again. */
static int keep(struct gathering *gathering, PyObject *record, const struct steps *steps)
{
    PyObject *found = gathering->found;
    bool is_plain = steps->state != Py_None && !PyList_GET_SIZE(PyTuple_GET_ITEM(found, TO_SEAL)) &&
                    (steps->timeline == NULL || !PyDict_GET_SIZE(steps->timeline));
    int failed = is_plain ? keep_plain(gathering, record, steps) : keep_other(gathering, record, steps);
    if (!failed && !is_plain) {
        Py_SETREF(gathering->found, new_found(gathering));
        failed = gathering->found == NULL;
    }
    return failed ? -1 : 0;
}

/* The event was not kept: what it showed is unexpected still, and `found` is without anything again. */
static int take_back(struct gathering *gathering)
{
    PyObject *done = PyObject_CallOneArg(PyTuple_GET_ITEM(gathering->parts, TAKE_BACK), gathering->found);
    Py_XDECREF(done);
    Py_SETREF(gathering->found, done == NULL ? NULL : new_found(gathering));
    return gathering->found == NULL ? -1 : 0;
}

/* Whether a record is read as it stands: others, as one that was passed on undecrypted, carry more than a tuple shows. */
static bool is_common_record(const struct gathering *gathering, PyObject *record)
{
    PyTypeObject *type = Py_TYPE(record);
    return (type == (PyTypeObject *)type_of(gathering, RECORD_TYPE) ||
            type == (PyTypeObject *)type_of(gathering, DECRYPTED_TYPE)) &&
           is_tuple_of(record, 3) && PyBytes_CheckExact(PyTuple_GET_ITEM(record, 2));
}

/* Maps one record: 1, 0 for the reference to do, or -1 with an exception. */
static int gather(struct gathering *gathering, PyObject *record)
{
    struct steps steps = {NULL};
    if (!is_common_record(gathering, record)) {
        return 0;
    }
    int taken = take_steps(gathering, record, &steps), failed = 0;
    bool has_leaves = taken == 1;
    if (has_leaves) {
        taken = take_leaves(gathering, &steps) && take_timeline(gathering, record, &steps);
    }
    /* Whatever it is, the reference will meet it too, and say what becomes of the event; but for what was waited for long
     * enough, and stops the chunk. */
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(type_of(gathering, AWAY_TYPE))) {
            failed = -1;
        }
        else {
            PyErr_Clear();
            taken = 0;
        }
    }
    if (!failed && taken == 0 && has_leaves) {
        failed = take_back(gathering);
    }
    if (!failed && taken) {
        gathering->bytes += PyBytes_GET_SIZE(PyTuple_GET_ITEM(record, 2));
        gathering->skipped += taken == 2;
        failed = taken == 1 ? keep(gathering, record, &steps) : 0;
    }
    drop_steps(&steps);
    return failed ? -1 : taken != 0;
}

static int gather_all(struct gathering *gathering, PyObject *records)
{
    for (Py_ssize_t each = 0; each < PyList_GET_SIZE(records); each++) {
        PyObject *record = Py_NewRef(PyList_GET_ITEM(records, each)), *done = NULL;
        int kept = gather(gathering, record);
        if (kept == 0) {
            done = PyObject_CallOneArg(gathering->rest, record);
        }
        Py_XDECREF(done);
        Py_DECREF(record);
        if (kept < 0 || (kept == 0 && done == NULL)) {
            return -1;
        }
    }
    return 0;
}

/* gather(records, latest, add_plain, others, to_seal, rest) */
static PyObject *gather_chunk(PyObject *parts, PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 6) || !check_dict(arguments[3]) || !check_dict(arguments[4])) {
        return NULL;
    }
    if (!PyList_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "a list of records is needed");
        return NULL;
    }
    struct gathering gathering = {parts, arguments[2], arguments[3], arguments[4], arguments[5], NULL, 0, 0, 0, 0};
    gathering.latest = PyLong_AsLongLong(arguments[1]);
    if (gathering.latest == -1 && PyErr_Occurred()) {
        return NULL;
    }
    gathering.earliest = PyLong_AsLongLong(PyTuple_GET_ITEM(parts, EARLIEST));
    if (gathering.earliest == -1 && PyErr_Occurred()) {
        return NULL;
    }
    gathering.found = new_found(&gathering);
    int failed = gathering.found == NULL ? -1 : gather_all(&gathering, arguments[0]);
    Py_XDECREF(gathering.found);
    return failed ? NULL : Py_BuildValue("(nn)", gathering.bytes, gathering.skipped);
}

static PyMethodDef chunk_mapper_method = {
    "gather", (PyCFunction)(void (*)(void))gather_chunk, METH_FASTCALL,
    "gather(records, latest, add_plain, others, to_seal, rest): maps a list of records, the plain ones given\n"
    "to add_plain(fragment_id, time, state), the others into lists by fragment id, whose id is a key of `to_seal` where\n"
    "something must be sealed; gives how many bytes and how many skipped events those had for which rest(record) was not called."};

PyDoc_STRVAR(chunk_mapper_doc, "chunk_mapper((RawRecord, DecryptedRecord, Origin, Leaves, MappedEvent, Away), readers, routes,\n"
                           "find_route, protect, (state, root, skipped, policies, rest, encode, most), take_back,\n"
                           "timed, earliest): a function that maps chunks of records. Of their errors it raises Away.");

static bool are_chunk_mapper_types(PyObject *types)
{
    if (!PyTuple_CheckExact(types) || PyTuple_GET_SIZE(types) != TYPES) {
        return false;
    }
    for (int each = 0; each < TYPES; each++) {
        PyObject *type = PyTuple_GET_ITEM(types, each);
        /* A decrypted record is none that is made here, and holds more than its fields. */
        bool is_fitting = each == DECRYPTED_TYPE ? PyType_Check(type)
                          : each == AWAY_TYPE    ? PyExceptionClass_Check(type)
                                                 : is_named_tuple(type);
        if (!is_fitting) {
            return false;
        }
    }
    return true;
}

static PyObject *chunk_mapper(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, CHUNK_MAPPER_PARTS) || !check_dict(arguments[READERS]) || !check_dict(arguments[ROUTES])) {
        return NULL;
    }
    PyObject *leaves = arguments[LEAVES];
    if (!PyFrozenSet_CheckExact(arguments[TIMED])) {
        PyErr_SetString(PyExc_TypeError, "a frozen set of timed sources is needed");
        return NULL;
    }
    if (!are_chunk_mapper_types(arguments[OF_TYPES]) || !PyTuple_CheckExact(leaves) ||
        PyTuple_GET_SIZE(leaves) != LEAVES_PARTS || !is_short_integer(PyTuple_GET_ITEM(leaves, MOST_LEAVES))) {
        PyErr_SetString(PyExc_TypeError, "named tuples and the parts of leaves are needed");
        return NULL;
    }
    return with_parts(&chunk_mapper_method, arguments, CHUNK_MAPPER_PARTS);
}
