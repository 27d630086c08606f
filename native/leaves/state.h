/* merge.codec.encode, of what AttributeTree.leaves gives of one event. */
#pragma once

#include "walking.h"

#define MOST_TO_SEAL 1024
#define MOST_IDENTIFIERS 16

/* Collects what the twin made registers of. */
static void collect_rest(const struct walk *walk)
{
    struct collected *collected = walk->collected;
    PyObject *path, *made;
    Py_ssize_t place = 0;
    while (!collected->is_off && PyDict_Next(walk->plain, &place, &path, &made)) {
        if (collected->size == MOST_COLLECTED || !PyUnicode_CheckExact(path) || !PyUnicode_IS_READY(path) ||
            !PyUnicode_IS_ASCII(path) || !Py_IS_TYPE(made, register_type) || PyTuple_GET_SIZE(made) != 3 ||
            PyTuple_GET_ITEM(made, 0) != walk->origin ||
            (PyTuple_GET_ITEM(made, 1) != plain && PyTuple_GET_ITEM(made, 1) != deleted)) {
            collected->is_off = true;
            break;
        }
        struct entry of = {PyUnicode_DATA(path), PyUnicode_GET_LENGTH(path), Py_NewRef(path),
                           Py_NewRef(PyTuple_GET_ITEM(made, 2))};
        collected->leaves[collected->size++] = (struct leaf){of, PyTuple_GET_ITEM(made, 1)};
    }
}

/* Whether some path has a policy of its own: 1, 0, or -1 with an exception. */
static int has_policies(const struct walk *walk, PyObject *policies)
{
    const struct collected *collected = walk->collected;
    int found = 0;
    if (!PyDict_GET_SIZE(policies)) {
        return 0;
    }
    for (int each = 0; !found && each < collected->size; each++) {
        found = PyDict_Contains(policies, collected->leaves[each].of.key);
    }
    for (Py_ssize_t each = 0; !found && each < PyList_GET_SIZE(walk->to_seal); each++) {
        PyObject *what = Py_NewRef(PyList_GET_ITEM(walk->to_seal, each));
        bool is_odd = !Py_IS_TYPE(what, to_seal_type) || PyTuple_GET_SIZE(what) != 3;
        found = is_odd ? 1 : PyDict_Contains(policies, PyTuple_GET_ITEM(what, 0));
        Py_DECREF(what);
    }
    return found;
}

/* Most events have the leaves of one before them: for each number of leaves, the order that so many had last. */
#define MOST_REMEMBERED 96
static uint8_t orders[MOST_REMEMBERED + 1][MOST_REMEMBERED];

static int leaves_in_order(const void *one, const void *other)
{
    return in_order(&(*(const struct leaf *const *)one)->of, &(*(const struct leaf *const *)other)->of);
}

/* Whether they are in the order of those before: then that is a permutation, as no two are equal. */
static bool sort_as_before(const struct collected *collected, const struct leaf **sorted)
{
    const uint8_t *order = orders[collected->size];
    for (int each = 0; each < collected->size; each++) {
        sorted[each] = &collected->leaves[order[each]];
        if (each && leaves_in_order(&sorted[each - 1], &sorted[each]) >= 0) {
            return false;
        }
    }
    return true;
}

static void sort_leaves(const struct collected *collected, const struct leaf **sorted)
{
    bool is_remembered = collected->size <= MOST_REMEMBERED;
    if (is_remembered && sort_as_before(collected, sorted)) {
        return;
    }
    for (int each = 0; each < collected->size; each++) {
        sorted[each] = &collected->leaves[each];
    }
    qsort(sorted, (size_t)collected->size, sizeof *sorted, leaves_in_order);
    for (int each = 0; is_remembered && each < collected->size; each++) {
        orders[collected->size][each] = (uint8_t)(sorted[each] - collected->leaves);
    }
}

static int put_leaves(struct output *output, const struct collected *collected, PyObject *encode)
{
    const struct leaf *sorted[MOST_COLLECTED];
    sort_leaves(collected, sorted);
    if (!collected->size && put_character(output, '{')) {
        return -1;
    }
    for (int each = 0; each < collected->size; each++) {
        const struct leaf *leaf = sorted[each];
        const char *begin = leaf->kind == deleted ? "[0,0," : "[0,1,";
        if (put_key(output, &leaf->of, each ? ',' : '{', encode) || put(output, begin, 5) ||
            put_value(output, leaf->of.value, encode) || put_character(output, ']')) {
            return -1;
        }
    }
    return put_character(output, '}');
}

/* The text forms of identifiers, in order: how many, -1 with an exception, 0 for the twin to say. */
static int named(PyObject *identifiers, struct entry *names)
{
    int size = 0;
    for (; size < PyTuple_GET_SIZE(identifiers); size++) {
        PyObject *each = PyTuple_GET_ITEM(identifiers, size);
        PyObject *name = NULL;
        if (size < MOST_IDENTIFIERS && PyTuple_Check(each) && PyTuple_GET_SIZE(each) == 2 &&
            PyUnicode_CheckExact(PyTuple_GET_ITEM(each, 0)) && PyUnicode_CheckExact(PyTuple_GET_ITEM(each, 1))) {
            name = PyUnicode_FromFormat("%U:%U", PyTuple_GET_ITEM(each, 0), PyTuple_GET_ITEM(each, 1));
        }
        if (name != NULL && !PyUnicode_IS_ASCII(name)) {
            Py_CLEAR(name);
        }
        if (name == NULL) {
            break;
        }
        names[size] = (struct entry){PyUnicode_DATA(name), PyUnicode_GET_LENGTH(name), name, Py_None};
    }
    bool are_fine = size == PyTuple_GET_SIZE(identifiers);
    if (are_fine) {
        qsort(names, (size_t)size, sizeof *names, in_order);
    }
    for (int each = 1; are_fine && each < size; each++) {
        are_fine = in_order(&names[each - 1], &names[each]) != 0;
    }
    for (int each = 0; !are_fine && each < size; each++) {
        Py_DECREF(names[each].key);
    }
    return are_fine ? size : PyErr_Occurred() ? -1 : 0;
}

static int put_names(struct output *output, const struct entry *names, int size, PyObject *encode)
{
    for (int each = 0; each < size; each++) {
        if (put_key(output, &names[each], each ? ',' : '{', encode) || put_character(output, '0')) {
            return -1;
        }
    }
    return put_character(output, '}');
}

static PyObject *write_state(const struct walk *walk, const struct entry *names, int size, PyObject *encode)
{
    struct output output = {NULL, 0, 0};
    PyObject *made = NULL;
    if (more(&output, 1024) != NULL && !put(&output, "[[", 2) && !put_origin(&output, walk->origin, encode) &&
        !put(&output, "],", 2) && !put_leaves(&output, walk->collected, encode) && !put(&output, ",[],", 4) &&
        !put_names(&output, names, size, encode) && !put_character(&output, ']')) {
        made = PyBytes_FromStringAndSize(output.bytes, (Py_ssize_t)output.size);
    }
    PyMem_Free(output.bytes);
    return made;
}

/* The JSON of what was collected; None where that is not of the common form, and all leaves are registers. */
static PyObject *collected_state(const struct walk *walk, PyObject *identifiers, PyObject *policies, PyObject *encode)
{
    struct collected *collected = walk->collected;
    struct entry names[MOST_IDENTIFIERS];
    collect_rest(walk);
    bool is_odd = collected->is_off || PyList_GET_SIZE(walk->to_seal) > MOST_TO_SEAL;
    int policies_found = is_odd ? 1 : has_policies(walk, policies);
    int size = policies_found ? 0 : named(identifiers, names);
    if (size < 0 || policies_found < 0) {
        return NULL;
    }
    if (!size) {
        return stop_collecting(walk) ? NULL : Py_NewRef(Py_None);
    }
    PyObject *made = write_state(walk, names, size, encode);
    for (int each = 0; each < size; each++) {
        Py_DECREF(names[each].key);
    }
    if (made != NULL) {
        PyDict_Clear(walk->plain);
    }
    return made;
}

PyDoc_STRVAR(state_doc, "state(root, tree, skipped, origin, identifiers, policies, found, plain, to_seal, rest, encode): as\n"
                        "`walk`, but that what would stand in `plain` is given as the JSON of the event's state, where\n"
                        "`policies` has none of its paths. None where it does stand in `plain`.");

static PyObject *state(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 11) || !check_dict(arguments[5])) {
        return NULL;
    }
    PyObject *origin = arguments[3];
    if (!PyTuple_CheckExact(arguments[4]) || !PyTuple_Check(origin) || PyTuple_GET_SIZE(origin) != 2) {
        PyErr_SetString(PyExc_TypeError, "an origin and a tuple of identifiers are needed");
        return NULL;
    }
    struct collected collected;
    collected.is_off = false;
    collected.size = 0;
    struct walk walk = {arguments[0], arguments[2], origin, arguments[6], arguments[7], arguments[8], arguments[9],
                        &collected};
    PyObject *made = NULL;
    if (!walk_all(&walk, arguments[1])) {
        made = collected_state(&walk, arguments[4], arguments[5], arguments[10]);
    }
    drop_collected(&collected);
    return made;
}
