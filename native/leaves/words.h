/* Attribute nodes, and the texts in which transforms.schema.detection.shaped never finds anything. */
#pragma once

#include "../json.h"
#include "../objects.h"
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

/* What stands in a text: kinds of characters, each a bit. `OTHER` are small letters behind f, capitals and underscores. */
enum { DIGIT = 1, LETTER = 2, UNDERSCORE = 4, OTHER = 8, DASH = 16, ODD = 32 };
static Py_UCS1 kinds_of[256];

static void make_kinds(void)
{
    for (int each = 0; each < 256; each++) {
        bool is_small = each >= 'a' && each <= 'z', is_capital = each >= 'A' && each <= 'Z';
        kinds_of[each] = each >= '0' && each <= '9' ? DIGIT
                         : is_small || is_capital   ? LETTER | (is_capital || each > 'f' ? OTHER : 0)
                         : each == '_'              ? UNDERSCORE | OTHER
                         : each == '-'              ? DASH
                                                    : ODD;
    }
}

struct name {
    Py_ssize_t size, digits;
    unsigned int kinds;
};

/* Whether a text is of ASCII letters, digits, dashes and underscores alone. */
static bool read_name(PyObject *text, struct name *name)
{
    const Py_UCS1 *characters = PyUnicode_1BYTE_DATA(text);
    Py_ssize_t size = PyUnicode_GET_LENGTH(text), digits = 0;
    unsigned int kinds = 0;
    for (Py_ssize_t place = 0; place < size; place++) {
        unsigned int kind = kinds_of[characters[place]];
        kinds |= kind;
        digits += kind & DIGIT;
    }
    *name = (struct name){size, digits, kinds};
    return !(kinds & ODD);
}

/* Whether it may be a national identity number: see the shapes in transforms.schema.detection.account_numbers. */
static bool may_be_national(const struct name *name, Py_UCS1 first)
{
    if (name->size < 9 || name->size > 21 || name->kinds & UNDERSCORE) {
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
    if (PyUnicode_GET_LENGTH(text) > LONGEST_NAME || !read_name(text, &name) || !(name.kinds & (LETTER | UNDERSCORE))) {
        return false;
    }
    return !(name.size >= 15 && name.kinds & OTHER) && !may_be_national(&name, PyUnicode_1BYTE_DATA(text)[0]);
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
