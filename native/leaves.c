/* What an event leaves: its output's leaves, and which of its identifiers are hashed. Each function has a reference in
 * Python, named above it, which says what is right; tests/properties/test_native_leaves.py holds the two equal. See
 * README.md.
 *
 * Rules of this file: whoever may run Python code (a call, a comparison of values, a deallocation of values)
 * holds references of its own to what it continues using; what is not the common case is handed to the reference.
 */
#include "leaves/protector.h"
#include "leaves/state.h"

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
    make_kinds();
    return new_module(&definition);
}
