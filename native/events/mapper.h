/* transforms.spec.mapping.MappingSpec._map: an event becomes a mapped one. */
#pragma once

#include "reader.h"

enum { ID_PLACE, ORDINAL_PLACE, PLACES, TRANSFORM, PRIORITY, MAPPED_TYPE, STAMP_TYPE, IDENTIFIER_TYPE,
       READ_MAPPED_ORDINAL, MAPPER_REFERENCE, MAPPER_PARTS };
enum { PLACE_TYPE, PLACE_KEYS, MAY_NAME, PLACE_PARTS };

/* Keys of what a spec may look up of the envelope, in the order of an event's fields. */
static PyObject *context_keys[POSITION + 1];

static int make_context_keys(void)
{
    static const char *const names[] = {"source", "type", "id", "ordinal", "position"};
    for (int field = SOURCE_NAME; field <= POSITION; field++) {
        if (context_keys[field] == NULL && (context_keys[field] = PyUnicode_InternFromString(names[field])) == NULL) {
            return -1;
        }
    }
    return 0;
}

/* The context of the event before, where nothing else holds it: it is filled again. */
static PyObject *spare_context;

static PyObject *context_of(PyObject *event)
{
    PyObject *context = spare_context == NULL ? PyDict_New() : spare_context;
    spare_context = NULL;
    for (int field = SOURCE_NAME; context != NULL && field <= POSITION; field++) {
        if (PyDict_SetItem(context, context_keys[field], PyTuple_GET_ITEM(event, field))) {
            Py_CLEAR(context);
        }
    }
    PyObject *carried = PyTuple_GET_ITEM(event, CARRIED);
    if (context != NULL && PyDict_CheckExact(carried) && PyDict_Update(context, carried)) {
        Py_CLEAR(context);
    }
    return context;
}

static PyObject *transformed(PyObject *parts, PyObject *event)
{
    PyObject *context = context_of(event);
    if (context == NULL) {
        return NULL;
    }
    PyObject *arguments[] = {PyTuple_GET_ITEM(event, PAYLOAD), context};
    PyObject *output = PyObject_Vectorcall(PyTuple_GET_ITEM(parts, TRANSFORM), arguments, 2, NULL);
    if (spare_context == NULL && Py_REFCNT(context) == 1 && PyDict_GET_SIZE(context) == POSITION + 1) {
        spare_context = context;
    }
    else {
        Py_DECREF(context);
    }
    return output;
}

/* What a spec reads at a place, or the event's own field where the spec names none. */
static PyObject *named_or_own(PyObject *keys, PyObject *output, PyObject *event, int field)
{
    return keys == Py_None ? Py_NewRef(PyTuple_GET_ITEM(event, field)) : value_at(output, keys);
}

/* The stamp, NULL without an exception for the reference to say. */
static PyObject *stamp_of(PyObject *parts, PyObject *event, PyObject *output)
{
    PyObject *fields[] = {Py_NewRef(PyTuple_GET_ITEM(parts, PRIORITY)), NULL,
                          Py_NewRef(PyTuple_GET_ITEM(event, SOURCE_NAME)), NULL};
    PyObject *stamp = NULL;
    PyObject *ordinal = named_or_own(PyTuple_GET_ITEM(parts, ORDINAL_PLACE), output, event, ORDINAL);
    if (ordinal != NULL && ordinal != Py_None) {
        fields[1] = ordinal_of(ordinal, PyTuple_GET_ITEM(parts, READ_MAPPED_ORDINAL));
    }
    Py_XDECREF(ordinal);
    PyObject *id = fields[1] == NULL ? NULL : named_or_own(PyTuple_GET_ITEM(parts, ID_PLACE), output, event, ID);
    fields[3] = id == NULL ? NULL : text_of(id, LONGEST_ID);
    Py_XDECREF(id);
    if (fields[3] != NULL) {
        stamp = new_tuple((PyTypeObject *)PyTuple_GET_ITEM(parts, STAMP_TYPE), fields, 4);
    }
    drop_all(fields, 4);
    return stamp;
}

/* Identifiers of an event, `text` is its own; `name` is the place of the one that names the fragment. */
struct identifiers {
    PyObject *type[MOST_IDENTIFIERS], *text[MOST_IDENTIFIERS];
    int size, name;
};

static bool is_known(const struct identifiers *found, PyObject *type, PyObject *text)
{
    for (int each = 0; each < found->size; each++) {
        if (PyUnicode_Compare(found->text[each], text) == 0 && PyUnicode_Compare(found->type[each], type) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds what stands at a place: 1, 0 for the reference to say, -1 with an exception. */
static int add_identifier(struct identifiers *found, PyObject *place, PyObject *output)
{
    PyObject *value = value_at(output, PyTuple_GET_ITEM(place, PLACE_KEYS)), *text = NULL;
    if (value == NULL) {
        return -1;
    }
    bool is_nothing = value == Py_None || (PyUnicode_CheckExact(value) && PyUnicode_IS_READY(value) &&
                                           !PyUnicode_GET_LENGTH(value));
    bool may_be_blank = is_plain_text(value, LONGEST_ID) && Py_UNICODE_ISSPACE(PyUnicode_READ_CHAR(value, 0));
    if (!is_nothing && !may_be_blank) {
        text = text_of(value, LONGEST_ID);
    }
    Py_DECREF(value);
    if (text == NULL) {
        return is_nothing ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    PyObject *type = PyTuple_GET_ITEM(place, PLACE_TYPE);
    /* The first that may name does, though it was found before at a place that may not. */
    bool names = found->name < 0 && PyTuple_GET_ITEM(place, MAY_NAME) == Py_True;
    if (is_known(found, type, text)) {
        Py_DECREF(text);
        return !names;
    }
    found->name = names ? found->size : found->name;
    found->type[found->size] = type;
    found->text[found->size++] = text;
    return 1;
}

static PyObject *new_identifier(PyObject *parts, const struct identifiers *found, int place)
{
    PyObject *fields[] = {found->type[place], found->text[place]};
    return new_tuple((PyTypeObject *)PyTuple_GET_ITEM(parts, IDENTIFIER_TYPE), fields, 2);
}

/* The one that names the fragment first. */
static PyObject *in_order(PyObject *parts, const struct identifiers *found)
{
    PyObject *made = PyTuple_New(found->size);
    for (int each = 0; made != NULL && each < found->size; each++) {
        int place = each == 0 ? found->name : each <= found->name ? each - 1 : each;
        PyObject *one = new_identifier(parts, found, place);
        if (one == NULL) {
            Py_CLEAR(made);
            break;
        }
        PyTuple_SET_ITEM(made, each, one);
    }
    return made;
}

/* The identifiers, NULL without an exception for the reference to say. */
static PyObject *identifiers_of(PyObject *parts, PyObject *output)
{
    PyObject *places = PyTuple_GET_ITEM(parts, PLACES);
    struct identifiers found = {.size = 0, .name = -1};
    int done = 1;
    for (Py_ssize_t each = 0; done == 1 && each < PyTuple_GET_SIZE(places); each++) {
        done = add_identifier(&found, PyTuple_GET_ITEM(places, each), output);
    }
    PyObject *made = done == 1 && found.name >= 0 ? in_order(parts, &found) : NULL;
    drop_all(found.text, found.size);
    return made;
}

/* The mapped event, NULL without an exception for the reference to say. */
static PyObject *mapped_of(PyObject *parts, PyObject *event, PyObject *output)
{
    PyObject *fields[] = {NULL, NULL, output}, *made = NULL;
    fields[0] = stamp_of(parts, event, output);
    fields[1] = fields[0] == NULL ? NULL : identifiers_of(parts, output);
    if (fields[1] != NULL) {
        made = new_tuple((PyTypeObject *)PyTuple_GET_ITEM(parts, MAPPED_TYPE), fields, 3);
    }
    drop_all(fields, 2);
    return made;
}

static PyObject *map_event(PyObject *parts, PyObject *event)
{
    if (!PyTuple_Check(event) || PyTuple_GET_SIZE(event) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "an event is needed");
        return NULL;
    }
    PyObject *output = transformed(parts, event), *mapped = NULL;
    if (output == NULL || output == Py_None) {
        return output;
    }
    if (PyDict_CheckExact(output)) {
        mapped = mapped_of(parts, event, output);
    }
    if (mapped == NULL && !PyErr_Occurred()) {
        PyObject *arguments[] = {event, output};
        mapped = PyObject_Vectorcall(PyTuple_GET_ITEM(parts, MAPPER_REFERENCE), arguments, 2, NULL);
    }
    Py_DECREF(output);
    return mapped;
}

static PyMethodDef mapper_method = {"map", map_event, METH_O, "map(event): it in the unified schema, or None."};

PyDoc_STRVAR(mapper_doc, "mapper(id, ordinal, places, transform, priority, MappedEvent, Stamp, Identifier, read_ordinal,\n"
                         "reference): a function that maps events. `id` and `ordinal` are tuples of keys or None, `places`\n"
                         "a tuple of (type, keys, may name); reference(event, output) reads what is not of the common form.");

static bool is_identifier_place(PyObject *place)
{
    return PyTuple_CheckExact(place) && PyTuple_GET_SIZE(place) == PLACE_PARTS &&
           PyUnicode_CheckExact(PyTuple_GET_ITEM(place, PLACE_TYPE)) && is_place(PyTuple_GET_ITEM(place, PLACE_KEYS)) &&
           PyBool_Check(PyTuple_GET_ITEM(place, MAY_NAME));
}

static bool are_places(PyObject *places)
{
    if (!PyTuple_CheckExact(places) || PyTuple_GET_SIZE(places) > MOST_IDENTIFIERS) {
        return false;
    }
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(places); each++) {
        if (!is_identifier_place(PyTuple_GET_ITEM(places, each))) {
            return false;
        }
    }
    return true;
}

static PyObject *mapper(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, MAPPER_PARTS)) {
        return NULL;
    }
    if (!is_place_or_none(arguments[ID_PLACE]) || !is_place_or_none(arguments[ORDINAL_PLACE]) ||
        !are_places(arguments[PLACES]) || !is_named_tuple(arguments[MAPPED_TYPE]) ||
        !is_named_tuple(arguments[STAMP_TYPE]) || !is_named_tuple(arguments[IDENTIFIER_TYPE])) {
        PyErr_SetString(PyExc_TypeError, "places and named tuples are needed");
        return NULL;
    }
    return with_parts(&mapper_method, arguments, MAPPER_PARTS);
}
