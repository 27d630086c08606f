/* States as their bytes (merge.codec): joined, and looked into, without an object for each register. Each function
 * has a reference in Python, named above it, which says what is right; tests/properties/test_native_states.py holds
 * the two equal. See README.md.
 *
 * What is read here was written by merge.codec.encode, and its checksum was compared. All the same no byte is
 * trusted: whatever is not as expected gives None, and the reference says what it is.
 */
#include "states/event_joining.h"
#include "states/fields.h"

static PyMethodDef methods[] = {
    {"join_all", join_all, METH_O, join_all_doc},
    {"identifiers", (PyCFunction)(void (*)(void))identifiers, METH_FASTCALL, identifiers_doc},
    {"fields", (PyCFunction)(void (*)(void))fields, METH_FASTCALL, fields_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_states", "States as their bytes.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__states(void)
{
    PyObject *module = new_module(&definition);
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&event_states_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "EventStates", type)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(type);
    return module;
}
