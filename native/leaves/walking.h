/* transforms.schema.diff.AttributeTree._walk: the leaves of a tree, each with its node. */
#pragma once

#include "words.h"

/* What a node's slot holds: borrowed, NULL when it is not set. */
static PyObject *slot_of(PyObject *node, int slot)
{
    return *(PyObject **)((char *)node + slot_offsets[slot]);
}

/* Whether a leaf's value can be stored as it is, without asking; `number` is what an integer says. */
static bool is_storable(PyObject *value, long long *number)
{
    if (PyUnicode_CheckExact(value)) {
        /* One byte a character: ASCII or Latin-1, no half of a surrogate pair. */
        return PyUnicode_IS_READY(value) && PyUnicode_KIND(value) == PyUnicode_1BYTE_KIND;
    }
    if (PyLong_CheckExact(value)) {
        int overflow;
        *number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return !overflow;
    }
    return PyBool_Check(value) || (PyFloat_CheckExact(value) && isfinite(PyFloat_AS_DOUBLE(value)));
}

/* Whether detectors are known to say nothing of a value: 1, 0, or -1 with an exception. */
static int is_harmless(PyObject *node, PyObject *value, long long number)
{
    PyObject *tests = slot_of(node, TESTS);
    if (tests == NULL || !PyDict_CheckExact(tests)) {
        return 0;
    }
    PyObject *test = PyDict_GetItemWithError(tests, (PyObject *)Py_TYPE(value));
    if (test == NULL) {
        return PyErr_Occurred() ? -1 : 1;
    }
    if (test == shaped && PyUnicode_CheckExact(value)) {
        return PyUnicode_KIND(value) == PyUnicode_1BYTE_KIND && shows_nothing(value);
    }
    return test == card_as_number && PyLong_CheckExact(value) &&
           (number < 10000000000000LL || number >= 10000000000000000LL);
}

/* Whether a leaf is what its attribute expects and nothing else: 1, 0, or -1 with an exception. */
static int is_common(PyObject *node, PyObject *value)
{
    long long number = 0;
    if (!is_storable(value, &number)) {
        return 0;
    }
    PyObject *seen = slot_of(node, KINDS_SEEN);
    if (seen == NULL || !PyFrozenSet_CheckExact(seen)) {
        return 0;
    }
    int expected = PySet_Contains(seen, (PyObject *)Py_TYPE(value));
    if (expected <= 0 || slot_of(node, IS_UNDECIDED) == Py_False) {
        return expected;
    }
    return is_harmless(node, value, number);
}

/* Leaves that become no registers yet: `of` holds path and value, `is_off` says that they do. */
#define MOST_COLLECTED 1024
struct collected {
    bool is_off;
    int size;
    struct leaf {
        struct entry of;
        PyObject *kind;
    } leaves[MOST_COLLECTED];
};

/* `collected` is NULL where all leaves become registers at once. */
struct walk {
    PyObject *root, *skipped, *origin, *found, *plain, *to_seal, *rest;
    struct collected *collected;
};

static int hand_over(const struct walk *walk, PyObject *parent, PyObject *key, PyObject *value)
{
    PyObject *leaf = PyDict_New();
    if (leaf == NULL) {
        return -1;
    }
    PyObject *done = NULL;
    if (PyDict_SetItem(leaf, key, value) == 0) {
        PyObject *arguments[] = {parent, leaf, walk->origin, walk->found};
        done = PyObject_Vectorcall(walk->rest, arguments, 4, NULL);
    }
    Py_DECREF(leaf);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int add_register(const struct walk *walk, PyObject *path, PyObject *kind, PyObject *value)
{
    PyObject *items[] = {walk->origin, kind, value};
    PyObject *made = new_tuple(register_type, items, 3);
    int failed = made == NULL ? -1 : PyDict_SetItem(walk->plain, path, made);
    Py_XDECREF(made);
    return failed;
}

static void drop_collected(struct collected *collected)
{
    while (collected->size) {
        struct entry *of = &collected->leaves[--collected->size].of;
        Py_DECREF(of->key);
        Py_DECREF(of->value);
    }
}

/* Makes registers of what was collected, and of all that follows. */
static int stop_collecting(const struct walk *walk)
{
    struct collected *collected = walk->collected;
    int failed = 0;
    collected->is_off = true;
    for (int each = 0; !failed && each < collected->size; each++) {
        const struct leaf *leaf = &collected->leaves[each];
        failed = add_register(walk, leaf->of.key, leaf->kind, leaf->of.value);
    }
    drop_collected(collected);
    return failed;
}

/* The caller holds `value`, and `path` is a node's. */
static int set_register(const struct walk *walk, PyObject *path, PyObject *kind, PyObject *value)
{
    struct collected *collected = walk->collected;
    Py_INCREF(path);
    bool is_odd = collected != NULL && (collected->size == MOST_COLLECTED || !PyUnicode_IS_ASCII(path));
    int failed = is_odd && !collected->is_off ? stop_collecting(walk) : 0;
    if (!failed && collected != NULL && !collected->is_off) {
        struct entry of = {PyUnicode_DATA(path), PyUnicode_GET_LENGTH(path), path, Py_NewRef(value)};
        collected->leaves[collected->size++] = (struct leaf){of, kind};
        return 0;
    }
    failed = failed || add_register(walk, path, kind, value);
    Py_DECREF(path);
    return failed ? -1 : 0;
}

static int add_to_seal(const struct walk *walk, PyObject *node, PyObject *value)
{
    PyObject *items[] = {slot_of(node, PATH), value, slot_of(node, IS_SEARCHABLE)};
    PyObject *made = new_tuple(to_seal_type, items, 3);
    int failed = made == NULL ? -1 : PyList_Append(walk->to_seal, made);
    Py_XDECREF(made);
    return failed;
}

static bool is_whole(PyObject *node)
{
    if (!Py_IS_TYPE(node, node_type)) {
        return false;
    }
    PyObject *path = slot_of(node, PATH), *sealed = slot_of(node, IS_SEALED);
    return path != NULL && PyUnicode_CheckExact(path) && PyUnicode_IS_READY(path) && sealed != NULL && PyBool_Check(sealed) &&
           slot_of(node, IS_SEARCHABLE) != NULL;
}

static int set_leaf(const struct walk *walk, PyObject *parent, PyObject *key, PyObject *node, PyObject *value)
{
    int common = is_common(node, value);
    if (common <= 0) {
        return common < 0 ? -1 : hand_over(walk, parent, key, value);
    }
    if (!is_whole(node)) { /* detectors were asked meanwhile */
        return hand_over(walk, parent, key, value);
    }
    if (slot_of(node, IS_SEALED) == Py_False) {
        return set_register(walk, slot_of(node, PATH), plain, value);
    }
    return add_to_seal(walk, node, value);
}

static int walk_tree(const struct walk *walk, PyObject *parent, PyObject *tree);

static int walk_key(const struct walk *walk, PyObject *parent, PyObject *children, PyObject *key,
                    PyObject *value)
{
    PyObject *node = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(children, key) : NULL;
    if (node == NULL && PyErr_Occurred()) {
        return -1;
    }
    if (node == NULL || !is_whole(node)) {
        return hand_over(walk, parent, key, value);
    }
    Py_INCREF(node);
    int failed;
    if (PyDict_CheckExact(value)) {
        failed = walk_tree(walk, node, value);
    }
    else if (value == Py_None) {
        failed = set_register(walk, slot_of(node, PATH), deleted, value);
    }
    else {
        failed = set_leaf(walk, parent, key, node, value);
    }
    Py_DECREF(node);
    return failed;
}

static int walk_keys(const struct walk *walk, PyObject *parent, PyObject *children, PyObject *tree)
{
    Py_ssize_t place = 0, size = PyDict_GET_SIZE(tree);
    PyObject *key, *value;
    while (PyDict_Next(tree, &place, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        int failed = parent == walk->root ? PyObject_RichCompareBool(key, walk->skipped, Py_EQ) : 0;
        failed = failed ? failed < 0 : walk_key(walk, parent, children, key, value);
        Py_DECREF(key);
        Py_DECREF(value);
        if (failed) {
            return -1;
        }
        if (!still_as_long(tree, size)) {
            return -1;
        }
    }
    return 0;
}

/* The caller holds references to `parent` and `tree`. */
static int walk_tree(const struct walk *walk, PyObject *parent, PyObject *tree)
{
    PyObject *children = slot_of(parent, CHILDREN);
    if (children == NULL || !PyDict_CheckExact(children)) {
        PyErr_SetString(PyExc_TypeError, "a node without children");
        return -1;
    }
    if (Py_EnterRecursiveCall(" while walking a mapped output")) {
        return -1;
    }
    Py_INCREF(children);
    int failed = walk_keys(walk, parent, children, tree);
    Py_DECREF(children);
    Py_LeaveRecursiveCall();
    return failed;
}

PyDoc_STRVAR(walk_doc, "walk(root, tree, skipped, origin, found, plain, to_seal, rest): sets in `plain` and `to_seal`\n"
                       "what is as expected, but for the key `skipped` of the tree itself; calls rest(parent,\n"
                       "{key: value}, origin, found) for every other entry, in its order.");

/* Walks the tree `arguments[1]`; what `walk` and `state` have in common. */
static int walk_all(const struct walk *walk, PyObject *tree)
{
    if (node_type == NULL || !Py_IS_TYPE(walk->root, node_type) || !PyDict_CheckExact(tree) ||
        !PyDict_CheckExact(walk->plain) || !PyList_CheckExact(walk->to_seal)) {
        PyErr_SetString(PyExc_TypeError, "a bound node, two dicts and a list are needed");
        return -1;
    }
    return walk_tree(walk, walk->root, tree);
}

static PyObject *walk(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 8)) {
        return NULL;
    }
    struct walk walk = {arguments[0], arguments[2], arguments[3], arguments[4],
                        arguments[5], arguments[6], arguments[7], NULL};
    if (walk_all(&walk, arguments[1])) {
        return NULL;
    }
    Py_RETURN_NONE;
}
