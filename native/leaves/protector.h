/* transforms.privacy.protected_names.ProtectedNames.protector: which identifiers of an event are hashed. */
#pragma once

#include "words.h"

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

static PyObject *copy_of(PyObject *identifiers)
{
    PyObject *made = PyTuple_New(PyTuple_GET_SIZE(identifiers));
    for (Py_ssize_t each = 0; made != NULL && each < PyTuple_GET_SIZE(identifiers); each++) {
        PyTuple_SET_ITEM(made, each, Py_NewRef(PyTuple_GET_ITEM(identifiers, each)));
    }
    return made;
}

static PyObject *protect(PyObject *parts, PyObject *identifiers)
{
    if (!PyTuple_CheckExact(identifiers)) {
        PyErr_SetString(PyExc_TypeError, "a tuple is needed");
        return NULL;
    }
    /* A copy as soon as one of them is hashed: mostly none is. */
    PyObject *made = NULL;
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(identifiers); each++) {
        PyObject *given = PyTuple_GET_ITEM(identifiers, each), *one = protected_one(parts, given);
        if (one != NULL && one != given && made == NULL) {
            made = copy_of(identifiers);
        }
        if (one == NULL || (one != given && made == NULL)) {
            Py_XDECREF(one);
            Py_XDECREF(made);
            return NULL;
        }
        if (made == NULL) {
            Py_DECREF(one);
            continue;
        }
        PyTuple_SET_ITEM(made, each, one);
        Py_DECREF(given);
    }
    return made == NULL ? Py_NewRef(identifiers) : made;
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
