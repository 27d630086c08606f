/* Loops of the flow that run for every attribute of every fragment. Each has a reference in Python, named above it,
 * which says what is right; tests/properties/test_native_*.py hold the two equal. See README.md.
 *
 * Rules of this file: whoever may run Python code (a call, a comparison of values, a deallocation of values)
 * holds references of its own to what it goes on using; what is not the common case is handed to the reference.
 */
#include "json.h"
#include "objects.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define KINDS 3
enum { DELETED, PLAIN, SEALED };

/* What `bind` was given: the types that are built here, and Kind's members in their order. */
static PyTypeObject *register_type, *origin_type, *stamp_type, *spec_type;
static PyObject *kinds[KINDS];

static PyObject *new_register(PyObject *origin, PyObject *kind, PyObject *value)
{
    PyObject *items[] = {origin, kind, value};
    return new_tuple(register_type, items, 3);
}

/* The place of a kind, -1 for what is none. */
static int kind_of(PyObject *kind)
{
    for (int place = 0; place < KINDS; place++) {
        if (kind == kinds[place]) {
            return place;
        }
    }
    return -1;
}

PyDoc_STRVAR(bind_doc, "bind(Register, Origin, Stamp, SpecRef, kinds): what the loops build.");

static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 5)) {
        return NULL;
    }
    for (int place = 0; place < 4; place++) {
        if (!is_named_tuple(arguments[place])) {
            PyErr_SetString(PyExc_TypeError, "the first four must be named tuples");
            return NULL;
        }
    }
    if (!PyTuple_CheckExact(arguments[4]) || PyTuple_GET_SIZE(arguments[4]) != KINDS) {
        PyErr_SetString(PyExc_TypeError, "the kinds must be a tuple of three");
        return NULL;
    }
    register_type = (PyTypeObject *)Py_NewRef(arguments[0]);
    origin_type = (PyTypeObject *)Py_NewRef(arguments[1]);
    stamp_type = (PyTypeObject *)Py_NewRef(arguments[2]);
    spec_type = (PyTypeObject *)Py_NewRef(arguments[3]);
    for (int place = 0; place < KINDS; place++) {
        kinds[place] = Py_NewRef(PyTuple_GET_ITEM(arguments[4], place));
    }
    Py_RETURN_NONE;
}

/* ---- merge.codec.encode ---- */

/* The origins of a state: distinct as objects, in order; equal ones share a place. */
#define MOST_ORIGINS 64
struct origins {
    PyObject *sorted; /* list */
    Py_ssize_t size, last;
    PyObject *seen[MOST_ORIGINS];
    Py_ssize_t places[MOST_ORIGINS];
};

static Py_ssize_t find_origin(struct origins *origins, PyObject *origin)
{
    if (origins->last < origins->size && origins->seen[origins->last] == origin) {
        return origins->last;
    }
    for (Py_ssize_t each = 0; each < origins->size; each++) {
        if (origins->seen[each] == origin) {
            return origins->last = each;
        }
    }
    return -1;
}

/* 1 when it is noted, 0 for too many or what is no origin, -1 with an exception. */
static int note_origin(struct origins *origins, PyObject *origin)
{
    if (find_origin(origins, origin) >= 0) {
        return 1;
    }
    if (origins->size == MOST_ORIGINS || !Py_IS_TYPE(origin, origin_type) || PyTuple_GET_SIZE(origin) != 2) {
        return 0;
    }
    if (PyList_Append(origins->sorted, origin)) {
        return -1;
    }
    origins->last = origins->size;
    origins->seen[origins->size++] = origin; /* kept alive by the list */
    return 1;
}

/* Sorts them and gives each its place; takes equal ones out of the list's copy that is written. */
static PyObject *place_origins(struct origins *origins)
{
    if (origins->size > 1 && PyList_Sort(origins->sorted)) {
        return NULL;
    }
    PyObject *written = PyList_New(0);
    if (written == NULL) {
        return NULL;
    }
    for (Py_ssize_t each = 0; each < origins->size; each++) {
        PyObject *origin = PyList_GET_ITEM(origins->sorted, each);
        Py_ssize_t size = PyList_GET_SIZE(written);
        int differs = size ? PyObject_RichCompareBool(origin, PyList_GET_ITEM(written, size - 1), Py_NE) : 1;
        if (differs < 0 || (differs && PyList_Append(written, origin))) {
            Py_DECREF(written);
            return NULL;
        }
        Py_ssize_t found = find_origin(origins, origin);
        origins->places[found] = PyList_GET_SIZE(written) - 1;
    }
    return written;
}

static void free_entries(struct entry *entries, Py_ssize_t size)
{
    for (Py_ssize_t each = 0; each < size; each++) {
        Py_DECREF(entries[each].key);
        Py_DECREF(entries[each].value);
    }
    PyMem_Free(entries);
}

/* A dict's entries sorted by key as `canonical.encode` sorts them: NULL with an exception, or without one
 * for keys that are not plain text. */
static struct entry *sorted_entries(PyObject *dict)
{
    Py_ssize_t size = PyDict_GET_SIZE(dict), place = 0, found = 0;
    struct entry *entries = PyMem_New(struct entry, size ? size : 1);
    if (entries == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    PyObject *key, *value;
    bool is_sorted = true;
    while (PyDict_Next(dict, &place, &key, &value)) {
        if (!PyUnicode_CheckExact(key) || !PyUnicode_IS_READY(key) || !PyUnicode_IS_ASCII(key)) {
            free_entries(entries, found);
            return NULL;
        }
        entries[found] = (struct entry){PyUnicode_DATA(key), PyUnicode_GET_LENGTH(key), Py_NewRef(key),
                                        Py_NewRef(value)};
        FETCH(value);
        FETCH((char *)value + 47);
        is_sorted = is_sorted && (!found || in_order(&entries[found - 1], &entries[found]) < 0);
        found++;
    }
    if (!is_sorted) {
        qsort(entries, (size_t)found, sizeof *entries, in_order);
    }
    return entries;
}

static int put_register(struct output *output, struct origins *origins, PyObject *value, PyObject *encode)
{
    Py_ssize_t found = find_origin(origins, PyTuple_GET_ITEM(value, 0));
    char kind[] = {',', (char)('0' + kind_of(PyTuple_GET_ITEM(value, 1))), ','};
    return put_character(output, '[') || put_number(output, origins->places[found]) ||
           put(output, kind, sizeof kind) || put_value(output, PyTuple_GET_ITEM(value, 2), encode) ||
           put_character(output, ']');
}

static int put_identifier(struct output *output, struct origins *origins, PyObject *value,
                          PyObject *Py_UNUSED(encode))
{
    return put_number(output, origins->places[find_origin(origins, value)]);
}

typedef int (*put_function)(struct output *, struct origins *, PyObject *, PyObject *);

static int put_entries(struct output *output, struct origins *origins, const struct entry *entries,
                       Py_ssize_t size, put_function put_one, PyObject *encode)
{
    if (!size && put_character(output, '{')) {
        return -1;
    }
    for (Py_ssize_t each = 0; each < size; each++) {
        if (put_key(output, &entries[each], each ? ',' : '{', encode) ||
            put_one(output, origins, entries[each].value, encode)) {
            return -1;
        }
    }
    return put_character(output, '}');
}

static int put_origins(struct output *output, PyObject *written, PyObject *encode)
{
    for (Py_ssize_t each = 0; each < PyList_GET_SIZE(written); each++) {
        if (put_character(output, each ? ',' : '[') ||
            put_origin(output, PyList_GET_ITEM(written, each), encode)) {
            return -1;
        }
    }
    return PyList_GET_SIZE(written) ? put_character(output, ']') : put(output, "[]", 2);
}

/* 1 when all are registers with few origins of the usual type; 0 for the reference to say; -1 with an exception. */
static int note_origins(struct origins *origins, const struct entry *entries, Py_ssize_t size, bool registers)
{
    int noted = 1;
    for (Py_ssize_t each = 0; each < size && noted == 1; each++) {
        PyObject *value = entries[each].value;
        if (registers) {
            if (!Py_IS_TYPE(value, register_type) || PyTuple_GET_SIZE(value) != 3 ||
                kind_of(PyTuple_GET_ITEM(value, 1)) < 0) {
                return 0;
            }
            FETCH(PyTuple_GET_ITEM(value, 2));
            value = PyTuple_GET_ITEM(value, 0);
        }
        noted = note_origin(origins, value);
    }
    return noted;
}

struct state {
    struct entry *registers, *identifiers;
    Py_ssize_t registers_size, identifiers_size;
    PyObject *markers, *encode;
};

static PyObject *write_body(const struct state *state, struct origins *origins)
{
    struct output output = {NULL, 0, 0};
    PyObject *body = NULL, *written = place_origins(origins);
    if (written != NULL && more(&output, 1024) != NULL && !put_character(&output, '[') &&
        !put_origins(&output, written, state->encode) && !put_character(&output, ',') &&
        !put_entries(&output, origins, state->registers, state->registers_size, put_register, state->encode) &&
        !put_character(&output, ',') && !put_value(&output, state->markers, state->encode) &&
        !put_character(&output, ',') &&
        !put_entries(&output, origins, state->identifiers, state->identifiers_size, put_identifier,
                     state->encode) &&
        !put_character(&output, ']')) {
        body = PyBytes_FromStringAndSize(output.bytes, (Py_ssize_t)output.size);
    }
    PyMem_Free(output.bytes);
    Py_XDECREF(written);
    return body;
}

static PyObject *noted_body(const struct state *state)
{
    struct origins origins = {.sorted = PyList_New(0)};
    if (origins.sorted == NULL) {
        return NULL;
    }
    int noted = note_origins(&origins, state->registers, state->registers_size, true);
    if (noted == 1) {
        noted = note_origins(&origins, state->identifiers, state->identifiers_size, false);
    }
    PyObject *body = noted < 0 ? NULL : noted ? write_body(state, &origins) : Py_NewRef(Py_None);
    Py_DECREF(origins.sorted);
    return body;
}

PyDoc_STRVAR(body_doc, "body(registers, identifiers, markers, encode): the JSON of a state, `markers` its sorted list;\n"
                       "None for one that is not of the common form. Other values are written by `encode`.");

static PyObject *body(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 4) || !check_dict(arguments[0]) || !check_dict(arguments[1])) {
        return NULL;
    }
    if (register_type == NULL) {
        PyErr_SetString(PyExc_TypeError, "bind comes first");
        return NULL;
    }
    struct state state = {.markers = arguments[2], .encode = arguments[3]};
    PyObject *made = NULL;
    state.registers_size = PyDict_GET_SIZE(arguments[0]);
    state.identifiers_size = PyDict_GET_SIZE(arguments[1]);
    state.registers = sorted_entries(arguments[0]);
    state.identifiers = state.registers == NULL ? NULL : sorted_entries(arguments[1]);
    if (state.identifiers != NULL) {
        made = noted_body(&state);
        free_entries(state.identifiers, state.identifiers_size);
    }
    else if (!PyErr_Occurred()) {
        made = Py_NewRef(Py_None);
    }
    if (state.registers != NULL) {
        free_entries(state.registers, state.registers_size);
    }
    return made;
}

/* ---- merge.codec.decode ---- */

/* An item of a list or tuple at an index as Python reads it: borrowed, or NULL with IndexError. */
static PyObject *item_at(PyObject *const *items, Py_ssize_t size, PyObject *index)
{
    if (!PyLong_Check(index)) {
        PyErr_SetString(PyExc_TypeError, "list indices must be integers or slices");
        return NULL;
    }
    Py_ssize_t place = PyNumber_AsSsize_t(index, PyExc_IndexError);
    if (place == -1 && PyErr_Occurred()) {
        return NULL;
    }
    place += place < 0 ? size : 0;
    if (place < 0 || place >= size) {
        PyErr_SetString(PyExc_IndexError, "list index out of range");
        return NULL;
    }
    return items[place];
}

static PyObject *read_register(PyObject *wire, PyObject *origins)
{
    if (!PyTuple_CheckExact(wire) || PyTuple_GET_SIZE(wire) != 3) {
        PyErr_SetString(PyExc_TypeError, "a register of something else");
        return NULL;
    }
    PyObject *origin =
        item_at(((PyListObject *)origins)->ob_item, PyList_GET_SIZE(origins), PyTuple_GET_ITEM(wire, 0));
    PyObject *kind = origin == NULL ? NULL : item_at(kinds, KINDS, PyTuple_GET_ITEM(wire, 1));
    return kind == NULL ? NULL : new_register(origin, kind, PyTuple_GET_ITEM(wire, 2));
}

PyDoc_STRVAR(registers_doc, "registers(wire, origins): turns a dict of (origin, kind, value) into one of registers.");

static PyObject *registers(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 2) || !check_dict(arguments[0])) {
        return NULL;
    }
    if (register_type == NULL || !PyList_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "bind comes first, and a list is needed");
        return NULL;
    }
    Py_ssize_t place = 0, size = PyDict_GET_SIZE(arguments[0]);
    PyObject *key, *wire;
    while (PyDict_Next(arguments[0], &place, &key, &wire)) {
        Py_INCREF(key);
        Py_INCREF(wire);
        PyObject *made = read_register(wire, arguments[1]);
        int failed =
            made == NULL || !still_as_long(arguments[0], size) || PyDict_SetItem(arguments[0], key, made);
        Py_XDECREF(made);
        Py_DECREF(wire);
        Py_DECREF(key);
        if (failed || !still_as_long(arguments[0], size)) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *read_origin(PyObject *wire)
{
    if (!PyTuple_CheckExact(wire) || PyTuple_GET_SIZE(wire) != 6) {
        PyErr_SetString(PyExc_TypeError, "an origin of something else");
        return NULL;
    }
    PyObject *const *fields = ((PyTupleObject *)wire)->ob_item;
    PyObject *parts[] = {new_tuple(stamp_type, fields, 4), NULL};
    parts[1] = parts[0] == NULL ? NULL : new_tuple(spec_type, fields + 4, 2);
    PyObject *origin = parts[1] == NULL ? NULL : new_tuple(origin_type, parts, 2);
    Py_XDECREF(parts[0]);
    Py_XDECREF(parts[1]);
    return origin;
}

PyDoc_STRVAR(origins_doc, "origins(wire): turns a list of six-tuples into a list of origins.");

static PyObject *origins(PyObject *Py_UNUSED(module), PyObject *wire)
{
    if (origin_type == NULL || !PyList_CheckExact(wire)) {
        PyErr_SetString(PyExc_TypeError, "bind comes first, and a list is needed");
        return NULL;
    }
    PyObject *made = PyList_New(PyList_GET_SIZE(wire));
    for (Py_ssize_t each = 0; made != NULL && each < PyList_GET_SIZE(made); each++) {
        PyObject *origin = NULL;
        if (each < PyList_GET_SIZE(wire)) {
            PyObject *fields = Py_NewRef(PyList_GET_ITEM(wire, each));
            origin = read_origin(fields);
            Py_DECREF(fields);
        }
        else {
            PyErr_SetString(PyExc_RuntimeError, "list changed size during iteration");
        }
        if (origin == NULL) {
            Py_CLEAR(made);
            break;
        }
        PyList_SET_ITEM(made, each, origin);
    }
    return made;
}

/* ---- merge.documents.document ---- */

static bool is_scalar(PyObject *value)
{
    return PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
           PyBool_Check(value);
}

/* What the index may know of a register that shows; None for nothing. The caller holds path and value. */
static PyObject *field(PyObject *path, PyObject *kind, PyObject *value, PyObject *is_indexable, PyObject *odd)
{
    if (kind == kinds[SEALED]) {
        return PyObject_CallFunctionObjArgs(odd, kind, value, NULL);
    }
    PyObject *answer = PyObject_CallOneArg(is_indexable, path);
    int indexable = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (indexable < 0) {
        return NULL;
    }
    if (!indexable) {
        return Py_NewRef(Py_None);
    }
    return is_scalar(value) ? Py_NewRef(value) : PyObject_CallFunctionObjArgs(odd, kind, value, NULL);
}

static int set_field(PyObject *fields, PyObject *path, PyObject *shown, PyObject *is_indexable, PyObject *odd)
{
    PyObject *made = field(path, PyTuple_GET_ITEM(shown, 1), PyTuple_GET_ITEM(shown, 2), is_indexable, odd);
    int failed = made == NULL || (made != Py_None && PyDict_SetItem(fields, path, made));
    Py_XDECREF(made);
    return failed ? -1 : 0;
}

/* Fetches the registers of a dict, and what they hold. */
static void fetch(PyObject *dict)
{
    PyObject *key, *value;
    for (Py_ssize_t place = 0; PyDict_Next(dict, &place, &key, &value);) {
        FETCH(value);
        FETCH((char *)value + 47);
    }
    for (Py_ssize_t place = 0; PyDict_Next(dict, &place, &key, &value);) {
        if (PyTuple_Check(value) && PyTuple_GET_SIZE(value) == 3) {
            FETCH(PyTuple_GET_ITEM(value, 2));
        }
    }
}

PyDoc_STRVAR(fields_doc, "fields(registers, replaced, is_indexable, odd): what the index may know, by path; `replaced`\n"
                         "is a set of paths, odd(kind, value) says what stands for a value that is no plain scalar.");

static PyObject *fields(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 4) || !check_dict(arguments[0])) {
        return NULL;
    }
    if (register_type == NULL || !PyAnySet_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "bind comes first, and a set is needed");
        return NULL;
    }
    fetch(arguments[0]);
    PyObject *made = PyDict_New(), *path, *shown;
    Py_ssize_t place = 0, size = PyDict_GET_SIZE(arguments[0]);
    while (made != NULL && PyDict_Next(arguments[0], &place, &path, &shown)) {
        if (!PyTuple_Check(shown) || PyTuple_GET_SIZE(shown) != 3) {
            PyErr_SetString(PyExc_TypeError, "a register of something else");
            Py_CLEAR(made);
            break;
        }
        Py_INCREF(path);
        Py_INCREF(shown);
        int replaced = PyTuple_GET_ITEM(shown, 1) == kinds[DELETED] ? 1
                       : PySet_GET_SIZE(arguments[1])               ? PySet_Contains(arguments[1], path)
                                                                    : 0;
        int failed =
            replaced < 0 || (!replaced && set_field(made, path, shown, arguments[2], arguments[3]));
        Py_DECREF(path);
        Py_DECREF(shown);
        failed = failed || !still_as_long(arguments[0], size);
        if (failed) {
            Py_CLEAR(made);
        }
    }
    return made;
}

#define LOOP(name, flags) {#name, (PyCFunction)(void (*)(void))name, flags, name##_doc}
static PyMethodDef methods[] = {
    LOOP(bind, METH_FASTCALL), LOOP(body, METH_FASTCALL),   LOOP(registers, METH_FASTCALL),
    LOOP(origins, METH_O),     LOOP(fields, METH_FASTCALL), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loops", "Loops that have a reference in Python.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loops(void)
{
    return new_module(&definition);
}
