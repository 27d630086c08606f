/* What an event leaves: its output's leaves, and which of its identifiers are hashed. Each function has a twin in
 * Python, named above it, which says what is right; tests/properties/test_native_leaves.py holds the two equal. See
 * README.md.
 *
 * Rules of this file: whoever may run Python code (a call, a comparison of values, a deallocation of values)
 * holds references of its own to what it goes on using; what is not the common case is handed to the twin.
 */
#include "json.h"
#include "objects.h"

#include <math.h>
#include <stdint.h>
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

/* ---- merge.codec.encode, of what AttributeTree.leaves gives of one event ---- */

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
    LOOP(state, METH_FASTCALL),
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
