/* transforms.detection.detection.shaped: the texts in which it never finds anything. */
#pragma once

#include "nodes.h"

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
