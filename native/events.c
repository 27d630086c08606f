/* From a record to a mapped event: what the envelope says, and what names and orders the event. Each function has a
 * reference in Python, named above it, which says what is right; tests/properties/test_native_events.py holds the two
 * equal. See README.md.
 *
 * Rules of this file: whoever may run Python code holds references of its own to what it continues using; what is not
 * the common case is handed to the reference.
 */
#include "events/chunk_mapper.h"
#include "events/mapper.h"
#include "events/reader.h"

#define LOOP(name, flags) {#name, (PyCFunction)(void (*)(void))name, flags, name##_doc}
static PyMethodDef methods[] = {
    LOOP(reader, METH_FASTCALL),
    LOOP(mapper, METH_FASTCALL),
    LOOP(chunk_mapper, METH_FASTCALL),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_events", "From records to mapped events.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__events(void)
{
    return make_context_keys() ? NULL : new_module(&definition);
}
