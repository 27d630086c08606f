/* What this module is bound to, and the slots of nodes of attributes. */
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
