/* transforms.privacy.protected_names.ProtectedNames.protector: an event's identifiers as they are stored. */
#pragma once

#include "words.h"

enum { SEALED_TYPES, UNDECIDED_TYPES, PROTECTS, NORMAL, HASHED, PROTECTOR_PARTS };

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

/* An identifier as it is stored; None for a blocked one. */
static PyObject *stored_one(PyObject *parts, PyObject *given)
{
    PyObject *identifier = PyObject_CallOneArg(PyTuple_GET_ITEM(parts, NORMAL), given);
    if (identifier == NULL || identifier == Py_None) {
        return identifier;
    }
    if (!PyTuple_Check(identifier) || PyTuple_GET_SIZE(identifier) != 2 ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(identifier, 0)) ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(identifier, 1))) {
        PyErr_SetString(PyExc_TypeError, "identifiers are needed");
        Py_DECREF(identifier);
        return NULL;
    }
    int hashed = is_hashed(parts, identifier);
    if (hashed) {
        PyObject *made = hashed < 0 ? NULL : PyObject_CallOneArg(PyTuple_GET_ITEM(parts, HASHED), identifier);
        Py_SETREF(identifier, made);
    }
    return identifier;
}

static PyObject *protect(PyObject *parts, PyObject *identifiers)
{
    if (!PyTuple_CheckExact(identifiers)) {
        PyErr_SetString(PyExc_TypeError, "a tuple is needed");
        return NULL;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(identifiers), kept = 0;
    bool is_same = true;
    PyObject *made = PyTuple_New(size);
    for (Py_ssize_t each = 0; made != NULL && each < size; each++) {
        PyObject *given = PyTuple_GET_ITEM(identifiers, each), *one = stored_one(parts, given);
        is_same = is_same && one == given;
        if (one == NULL) {
            Py_CLEAR(made);
        }
        else if (one != Py_None) {
            PyTuple_SET_ITEM(made, kept++, one);
        }
        else {
            Py_DECREF(one);
            if (each == 0) {
                break;
            }
        }
    }
    if (made == NULL || kept == size) {
        if (made != NULL && is_same) {
            Py_SETREF(made, Py_NewRef(identifiers));
        }
        return made;
    }
    return _PyTuple_Resize(&made, kept) ? NULL : made;
}

static PyMethodDef protector_method = {"protect", protect, METH_O, "protect(identifiers): as they are stored."};

PyDoc_STRVAR(protector_doc, "protector(sealed_types, undecided_types, protects, normal, hashed): a function that gives a tuple of\n"
                            "identifiers normalised, and those hashed that are of a sealed type, or of an undecided one and\n"
                            "protects(identifier); without those of which normal(identifier) is None, and nothing if the\n"
                            "first of them is.");

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
