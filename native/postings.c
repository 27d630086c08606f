/* The SQLite index's tokens and blocks of postings. Each function has a reference in Python, named above it, which says
 * what is right; tests/properties/test_native_postings.py holds the two equal. See README.md.
 *
 * Blocks come from a file: no byte of one is trusted.
 */
#include "postings/building.h"
#include "postings/finding.h"
#include "postings/merging.h"
#include "postings/tokens.h"

static PyMethodDef methods[] = {
    {"tokens", (PyCFunction)(void (*)(void))tokens, METH_FASTCALL, tokens_doc},
    {"build", build, METH_O, build_doc},
    {"merge", merge, METH_O, merge_doc},
    {"find", (PyCFunction)(void (*)(void))find, METH_FASTCALL, find_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_postings", "Blocks of postings.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__postings(void)
{
    return make_seeds() ? NULL : new_module(&definition);
}
