/* What an event leaves: its output's leaves, and which of its identifiers are hashed. Each function has a twin in
 * Python, named above it, which says what is right; tests/properties/test_native_leaves.py holds the two equal. See
 * README.md.
 *
 * Rules of this file: whoever may run Python code (a call, a comparison of values, a deallocation of values)
 * holds references of its own to what it goes on using; what is not the common case is handed to the twin.
 */
#include "objects.h"

#include <math.h>
#include <structmember.h>

/* What `bind` was given: the types that are built here, two members of Kind, AttributeNode and its slots, and the
 * detectors whose answer is known here. */
enum { CHILDREN, PATH, KINDS_SEEN, IS_SEALED, IS_SEARCHABLE, IS_UNDECIDED, TESTS, SLOTS };
static const char *const slot_names[SLOTS] = {
    "children", "path", "kinds", "is_sealed", "is_searchable", "is_undecided", "tests",
};
static PyTypeObject *node_type, *to_seal_type, *register_type;
static PyObject *deleted, *plain;
static Py_ssize_t slot_offsets[SLOTS];
static PyObject *shaped, *harmless, *card_as_number;

PyDoc_STRVAR(bind_doc, "bind(Register, (DELETED, PLAIN), AttributeNode, ValueToSeal, shaped, harmless, card_as_number):\n"
                       "what is looked at and built here.");

static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 7)) {
        return NULL;
    }
    if (!is_named_tuple(arguments[0]) || !PyTuple_CheckExact(arguments[1]) || PyTuple_GET_SIZE(arguments[1]) != 2 ||
        !PyType_Check(arguments[2]) || !is_named_tuple(arguments[3]) || !PySet_CheckExact(arguments[5])) {
        PyErr_SetString(PyExc_TypeError, "a named tuple, two kinds, a type, a named tuple and a set are needed");
        return NULL;
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        PyObject *member = PyObject_GetAttrString(arguments[2], slot_names[slot]);
        if (member == NULL) {
            return NULL;
        }
        PyMemberDef *definition =
            Py_IS_TYPE(member, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)member)->d_member : NULL;
        Py_DECREF(member);
        if (definition == NULL || definition->type != T_OBJECT_EX) {
            PyErr_Format(PyExc_TypeError, "%s is not a slot", slot_names[slot]);
            return NULL;
        }
        slot_offsets[slot] = definition->offset;
    }
    /* They live as long as the process: binding again keeps the old ones alive. */
    register_type = (PyTypeObject *)Py_NewRef(arguments[0]);
    deleted = Py_NewRef(PyTuple_GET_ITEM(arguments[1], 0));
    plain = Py_NewRef(PyTuple_GET_ITEM(arguments[1], 1));
    node_type = (PyTypeObject *)Py_NewRef(arguments[2]);
    to_seal_type = (PyTypeObject *)Py_NewRef(arguments[3]);
    shaped = Py_NewRef(arguments[4]);
    harmless = Py_NewRef(arguments[5]);
    card_as_number = Py_NewRef(arguments[6]);
    Py_RETURN_NONE;
}

/* ---- transforms.detection.detection.shaped ---- */

/* What it never finds anything in: texts shorter than SHORTEST, and _PLAIN_WORDS. Telling it costs less than
 * looking the text up. */
static bool is_plain_words(PyObject *text)
{
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    if (size < 6) {
        return true;
    }
    if (size > 23) {
        return false;
    }
    const Py_UCS1 *characters = PyUnicode_1BYTE_DATA(text);
    for (Py_ssize_t place = 0; place < size; place++) {
        Py_UCS1 each = characters[place];
        bool is_letter = (each | 0x20) >= 'a' && (each | 0x20) <= 'z';
        if (!is_letter && each != ' ' && each != '_' && each != '.' && each != '/' && each != ':' && each != '-') {
            return false;
        }
    }
    return true;
}

#define LONGEST_NAME 64

/* What stands in a text, counted. `others` are small letters behind f, capitals and underscores. */
struct name {
    Py_ssize_t size;
    int digits, letters, underscores, others;
};

/* Whether a text is of ASCII letters, digits, dashes and underscores alone. */
static bool read_name(PyObject *text, struct name *name)
{
    const Py_UCS1 *characters = PyUnicode_1BYTE_DATA(text);
    *name = (struct name){.size = PyUnicode_GET_LENGTH(text)};
    for (Py_ssize_t place = 0; place < name->size; place++) {
        Py_UCS1 each = characters[place];
        bool is_digit = each >= '0' && each <= '9', is_letter = (each | 0x20) >= 'a' && (each | 0x20) <= 'z';
        if (!is_digit && !is_letter && each != '-' && each != '_') {
            return false;
        }
        name->digits += is_digit;
        name->letters += is_letter;
        name->underscores += each == '_';
        name->others += !is_digit && each != '-' && !(each >= 'a' && each <= 'f');
    }
    return true;
}

/* Whether it may be a national identity number: see the shapes in transforms.detection.national_id. */
static bool may_be_national(const struct name *name, Py_UCS1 first)
{
    if (name->size < 9 || name->size > 21 || name->underscores) {
        return false;
    }
    if (first >= '0' && first <= '9') {
        return name->digits >= 8;
    }
    /* Italy's has 16 characters, Mexico's 18; Spain has one of X, Y or Z before the digits. */
    return first != '-' && (name->size == 16 || name->size == 18 || (first | 0x20) >= 'x');
}

/* What it never finds anything in either: ids as machines make them. Of letters, digits, dashes and underscores no
 * e-mail or IP address, pair of coordinates or street can be made, and with a letter among them no telephone or card
 * number. What is left are secrets and accounts, of 15 characters at least and never of a to f alone, and national
 * numbers. */
static bool is_plain_id(PyObject *text)
{
    struct name name;
    if (PyUnicode_GET_LENGTH(text) > LONGEST_NAME || !read_name(text, &name) || !(name.letters || name.underscores)) {
        return false;
    }
    return !(name.size >= 15 && name.others) && !may_be_national(&name, PyUnicode_1BYTE_DATA(text)[0]);
}

/* Whether nothing is found in a text: 1, 0, or -1 with an exception. */
static int shows_nothing(PyObject *text)
{
    if (is_plain_words(text) || is_plain_id(text)) {
        return 1;
    }
    int known = PySet_Contains(harmless, text);
    if (known) {
        return known;
    }
    PyObject *found = PyObject_CallOneArg(shaped, text);
    Py_XDECREF(found);
    return found == NULL ? -1 : found == Py_None;
}

/* ---- transforms.schema.AttributeTree._walk ---- */

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

struct walk {
    PyObject *root, *skipped, *origin, *found, *plain, *to_seal, *rest;
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

static int set_register(const struct walk *walk, PyObject *node, PyObject *kind, PyObject *value)
{
    PyObject *path = Py_NewRef(slot_of(node, PATH));
    PyObject *items[] = {walk->origin, kind, value};
    PyObject *made = new_tuple(register_type, items, 3);
    int failed = made == NULL ? -1 : PyDict_SetItem(walk->plain, path, made);
    Py_DECREF(path);
    Py_XDECREF(made);
    return failed;
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
    return path != NULL && PyUnicode_CheckExact(path) && sealed != NULL && PyBool_Check(sealed) &&
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
        return set_register(walk, node, plain, value);
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
        failed = set_register(walk, node, deleted, value);
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

static PyObject *walk(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 8) || !check_dict(arguments[5])) {
        return NULL;
    }
    if (node_type == NULL || !Py_IS_TYPE(arguments[0], node_type) ||
        !PyDict_CheckExact(arguments[1]) || !PyList_CheckExact(arguments[6])) {
        PyErr_SetString(PyExc_TypeError, "a bound node, a dict and a list are needed");
        return NULL;
    }
    struct walk walk = {arguments[0], arguments[2], arguments[3], arguments[4],
                        arguments[5], arguments[6], arguments[7]};
    if (walk_tree(&walk, arguments[0], arguments[1])) {
        return NULL;
    }
    Py_RETURN_NONE;
}


/* ---- transforms.protected_names.ProtectedNames.protector ---- */

enum { SEALED_TYPES, UNDECIDED_TYPES, PROTECTS, HASHED, PROTECTOR_PARTS };

/* Whether an identifier is hashed: 1, 0, or -1 with an exception. Its type and value are exact texts. */
static int is_hashed(PyObject *parts, PyObject *identifier)
{
    PyObject *type = PyTuple_GET_ITEM(identifier, 0), *value = PyTuple_GET_ITEM(identifier, 1);
    int found = PySet_Contains(PyTuple_GET_ITEM(parts, SEALED_TYPES), type);
    if (found) {
        return found;
    }
    found = PySet_Contains(PyTuple_GET_ITEM(parts, UNDECIDED_TYPES), type);
    if (found <= 0) {
        return found;
    }
    if (PyUnicode_IS_READY(value) && PyUnicode_KIND(value) == PyUnicode_1BYTE_KIND &&
        (is_plain_words(value) || is_plain_id(value))) {
        return 0;
    }
    PyObject *answer = PyObject_CallOneArg(PyTuple_GET_ITEM(parts, PROTECTS), identifier);
    found = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return found;
}

static PyObject *protected_one(PyObject *parts, PyObject *identifier)
{
    if (!PyTuple_Check(identifier) || PyTuple_GET_SIZE(identifier) != 2 ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(identifier, 0)) ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(identifier, 1))) {
        PyErr_SetString(PyExc_TypeError, "identifiers are needed");
        return NULL;
    }
    int hashed = is_hashed(parts, identifier);
    if (hashed <= 0) {
        return hashed < 0 ? NULL : Py_NewRef(identifier);
    }
    return PyObject_CallOneArg(PyTuple_GET_ITEM(parts, HASHED), identifier);
}

static PyObject *protect(PyObject *parts, PyObject *identifiers)
{
    if (!PyTuple_CheckExact(identifiers)) {
        PyErr_SetString(PyExc_TypeError, "a tuple is needed");
        return NULL;
    }
    PyObject *made = PyTuple_New(PyTuple_GET_SIZE(identifiers));
    for (Py_ssize_t each = 0; made != NULL && each < PyTuple_GET_SIZE(identifiers); each++) {
        PyObject *one = protected_one(parts, PyTuple_GET_ITEM(identifiers, each));
        if (one == NULL) {
            Py_CLEAR(made);
            break;
        }
        PyTuple_SET_ITEM(made, each, one);
    }
    return made;
}

static PyMethodDef protector_method = {"protect", protect, METH_O, "protect(identifiers): some of them hashed."};

PyDoc_STRVAR(protector_doc, "protector(sealed_types, undecided_types, protects, hashed): a function that gives a tuple of\n"
                            "identifiers with those hashed that are of a sealed type, or of an undecided one and\n"
                            "protects(identifier).");

static PyObject *protector(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, PROTECTOR_PARTS)) {
        return NULL;
    }
    if (!PyFrozenSet_CheckExact(arguments[SEALED_TYPES]) || !PyFrozenSet_CheckExact(arguments[UNDECIDED_TYPES])) {
        PyErr_SetString(PyExc_TypeError, "two frozen sets are needed");
        return NULL;
    }
    return with_parts(&protector_method, arguments, PROTECTOR_PARTS);
}

#define LOOP(name, flags) {#name, (PyCFunction)(void (*)(void))name, flags, name##_doc}
static PyMethodDef methods[] = {
    LOOP(bind, METH_FASTCALL),
    LOOP(walk, METH_FASTCALL),
    LOOP(protector, METH_FASTCALL),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_leaves", "What an event leaves.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__leaves(void)
{
    return new_module(&definition);
}
