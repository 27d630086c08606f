/* merge.codec.encode, of what AttributeTree.leaves gives of one event. */
#pragma once

#include "walking.h"

#define MOST_TO_SEAL 1024
#define MOST_IDENTIFIERS 16

/* Collects what the reference made registers of. */
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

static int leaves_in_order(const void *one, const void *other)
{
    return in_order(&(*(const struct leaf *const *)one)->of, &(*(const struct leaf *const *)other)->of);
}

static int put_leaf(struct output *output, const struct leaf *leaf, char before, PyObject *encode)
{
    if (put_key(output, &leaf->of, before, encode) || put(output, leaf->kind == deleted ? "[0,0," : "[0,1,", 5) ||
        put_value(output, leaf->of.value, encode)) {
        return -1;
    }
    return put_character(output, ']');
}

static int put_leaves(struct output *output, const struct collected *collected, PyObject *encode)
{
    const struct leaf *sorted[MOST_COLLECTED];
    for (int each = 0; each < collected->size; each++) {
        sorted[each] = &collected->leaves[each];
    }
    qsort(sorted, (size_t)collected->size, sizeof *sorted, leaves_in_order);
    if (!collected->size && put_character(output, '{')) {
        return -1;
    }
    for (int each = 0; each < collected->size; each++) {
        if (put_leaf(output, sorted[each], each ? ',' : '{', encode)) {
            return -1;
        }
    }
    return put_character(output, '}');
}

/* Text forms of an event's identifiers, one after the other. */
#define MOST_NAMED 2048
struct names {
    struct entry of[MOST_IDENTIFIERS];
    int size;
    char room[MOST_NAMED];
};

static bool is_ascii(PyObject *text)
{
    return PyUnicode_CheckExact(text) && PyUnicode_IS_READY(text) && PyUnicode_IS_ASCII(text);
}

/* The text forms in order: whether they are all there, each once; if not, the reference has to say. */
static bool read_names(PyObject *identifiers, struct names *names)
{
    size_t used = 0;
    names->size = 0;
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(identifiers); place++) {
        PyObject *each = PyTuple_GET_ITEM(identifiers, place);
        if (place == MOST_IDENTIFIERS || !PyTuple_Check(each) || PyTuple_GET_SIZE(each) != 2 ||
            !is_ascii(PyTuple_GET_ITEM(each, 0)) || !is_ascii(PyTuple_GET_ITEM(each, 1))) {
            return false;
        }
        PyObject *type = PyTuple_GET_ITEM(each, 0), *value = PyTuple_GET_ITEM(each, 1);
        size_t size = (size_t)PyUnicode_GET_LENGTH(type), rest = (size_t)PyUnicode_GET_LENGTH(value);
        if (size >= MOST_NAMED || rest >= MOST_NAMED || used + size + 1 + rest > MOST_NAMED) {
            return false;
        }
        char *text = names->room + used;
        memcpy(text, PyUnicode_1BYTE_DATA(type), size);
        text[size] = ':';
        memcpy(text + size + 1, PyUnicode_1BYTE_DATA(value), rest);
        names->of[names->size++] = (struct entry){text, (Py_ssize_t)(size + 1 + rest), NULL, NULL};
        used += size + 1 + rest;
    }
    qsort(names->of, (size_t)names->size, sizeof *names->of, in_order);
    bool are_distinct = names->size > 0;
    for (int each = 1; are_distinct && each < names->size; each++) {
        are_distinct = in_order(&names->of[each - 1], &names->of[each]) != 0;
    }
    return are_distinct;
}

static int put_escaped(struct output *output, const struct entry *name, PyObject *encode)
{
    PyObject *text = PyUnicode_FromStringAndSize(name->text, name->size);
    int failed = text == NULL || put_encoded(output, text, encode);
    Py_XDECREF(text);
    return failed ? -1 : 0;
}

static int put_names(struct output *output, const struct names *names, PyObject *encode)
{
    for (int each = 0; each < names->size; each++) {
        const struct entry *name = &names->of[each];
        int done = put_character(output, each ? ',' : '{') ? -1 : put_text(output, name->text, name->size);
        if (done < 0 || (!done && put_escaped(output, name, encode)) || put(output, ":0", 2)) {
            return -1;
        }
    }
    return put_character(output, '}');
}

/* What separates and escapes names in the key of a sighting. */
static bool is_separator(char each)
{
    return each == '|' || each == '%';
}

static char *add_name(char *end, const char *text, Py_ssize_t size)
{
    for (Py_ssize_t each = 0; each < size; each++) {
        if (is_separator(text[each])) {
            return NULL;
        }
    }
    memcpy(end, text, (size_t)size);
    return end + size;
}

/* merge.identity.evidence.shown_key: the source, no options, and the names but the first one given, which is the primary.
 * 1, 0 for the reference to do, -1 with an exception. */
static int put_sighting(struct output *output, const struct names *names, PyObject *source, PyObject *encode)
{
    if (names->size < 2) {
        return put(output, "{}", 2) ? -1 : 1;
    }
    if (!is_ascii(source) || PyUnicode_GET_LENGTH(source) > MOST_NAMED) {
        return 0;
    }
    char key[2 * MOST_NAMED + MOST_IDENTIFIERS + 2];
    char *end = add_name(key, (const char *)PyUnicode_1BYTE_DATA(source), PyUnicode_GET_LENGTH(source));
    if (end != NULL) {
        *end++ = '|';
    }
    for (int each = 0; end != NULL && each < names->size; each++) {
        if (names->of[each].text != names->room) {
            *end++ = '|';
            end = add_name(end, names->of[each].text, names->of[each].size);
        }
    }
    if (end == NULL) {
        return 0;
    }
    struct entry whole = {key, end - key, NULL, NULL};
    int done = put_character(output, '{') ? -1 : put_text(output, whole.text, whole.size);
    return done < 0 || (!done && put_escaped(output, &whole, encode)) || put(output, ":[0,0]}", 7) ? -1 : 1;
}

/* Room to write in that nobody uses now. */
#define MOST_SPARED (64 << 10)
static struct output spare;

static PyObject *write_state(const struct walk *walk, const struct names *names, PyObject *encode)
{
    /* Encoding may run Python, and that come here again: it then finds no room. */
    struct output output = spare;
    PyObject *made = NULL;
    spare = (struct output){NULL, 0, 0};
    output.size = 0;
    if (!put(&output, "[[", 2) && !put_origin(&output, walk->origin, encode) && !put(&output, "],", 2) &&
        !put_leaves(&output, walk->collected, encode) && !put(&output, ",[],", 4) &&
        !put_names(&output, names, encode) && !put_character(&output, ',')) {
        PyObject *source = PyTuple_GET_ITEM(PyTuple_GET_ITEM(walk->origin, 0), 2);
        int done = put_sighting(&output, names, source, encode);
        if (!done) {
            made = Py_NewRef(Py_None);
        }
        else if (done > 0 && !put_character(&output, ']')) {
            made = PyBytes_FromStringAndSize(output.bytes, (Py_ssize_t)output.size);
        }
    }
    if (spare.bytes != NULL || output.room > MOST_SPARED) {
        PyMem_Free(output.bytes);
    }
    else {
        spare = output;
    }
    return made;
}

/* The JSON of what was collected; None where that is not of the common form, and all leaves are registers. */
static PyObject *collected_state(const struct walk *walk, PyObject *identifiers, PyObject *policies, PyObject *encode)
{
    struct collected *collected = walk->collected;
    struct names names;
    collect_rest(walk);
    bool is_odd = collected->is_off || PyList_GET_SIZE(walk->to_seal) > MOST_TO_SEAL;
    int policies_found = is_odd ? 1 : has_policies(walk, policies);
    if (policies_found < 0) {
        return NULL;
    }
    if (policies_found || !read_names(identifiers, &names)) {
        return stop_collecting(walk) ? NULL : Py_NewRef(Py_None);
    }
    PyObject *made = write_state(walk, &names, encode);
    if (made == Py_None && stop_collecting(walk)) {
        Py_CLEAR(made);
    }
    if (made != NULL && made != Py_None) {
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
