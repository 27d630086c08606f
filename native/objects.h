/* What the native modules share: how objects of Python are looked at and made. */
#ifndef IDGRAPH_OBJECTS_H
#define IDGRAPH_OBJECTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#ifndef SOURCE
#define SOURCE 0
#endif

/* What is read here was made long before, and much else since: fetching it is what takes longest. */
#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

static inline bool check_arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%zd arguments where %zd are needed", given, wanted);
    return false;
}

static inline bool are_bytes(PyObject *const *arguments, Py_ssize_t size)
{
    for (Py_ssize_t each = 0; each < size; each++) {
        if (!PyBytes_Check(arguments[each])) {
            PyErr_Format(PyExc_TypeError, "a %s where bytes are needed", Py_TYPE(arguments[each])->tp_name);
            return false;
        }
    }
    return true;
}

static inline bool check_dict(PyObject *object)
{
    if (PyDict_Check(object)) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "a %s where a dict is needed", Py_TYPE(object)->tp_name);
    return false;
}

/* What a loop over a dict asks behind each call into Python: whether the dict is still as long as it was. */
static inline bool still_as_long(PyObject *walked, Py_ssize_t size)
{
    if (PyDict_GET_SIZE(walked) == size) {
        return true;
    }
    PyErr_SetString(PyExc_RuntimeError, "dictionary changed size during iteration");
    return false;
}

/* A named tuple: a tuple in all but its name, so that it can be filled here. */
static inline bool is_named_tuple(PyObject *type)
{
    return PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type) &&
           ((PyTypeObject *)type)->tp_basicsize == PyTuple_Type.tp_basicsize &&
           ((PyTypeObject *)type)->tp_alloc == PyType_GenericAlloc;
}

/* Of items that the caller need not hold: the collector may run when it is made. Of a few items. */
static inline PyObject *new_tuple(PyTypeObject *type, PyObject *const *items, Py_ssize_t size)
{
    for (Py_ssize_t place = 0; place < size; place++) {
        Py_INCREF(items[place]);
    }
    PyObject *made = type->tp_alloc(type, size);
    if (made == NULL) {
        for (Py_ssize_t place = 0; place < size; place++) {
            Py_DECREF(items[place]);
        }
        return NULL;
    }
#if PY_VERSION_HEX >= 0x030E0000
    ((PyTupleObject *)made)->ob_hash = -1;
#endif
    for (Py_ssize_t place = 0; place < size; place++) {
        PyTuple_SET_ITEM(made, place, items[place]);
    }
    return made;
}

/* A function that is given parts, which never change, as its first argument. */
static inline PyObject *with_parts(PyMethodDef *method, PyObject *const *parts, Py_ssize_t size)
{
    PyObject *held = PyTuple_New(size);
    if (held == NULL) {
        return NULL;
    }
    for (Py_ssize_t each = 0; each < size; each++) {
        PyTuple_SET_ITEM(held, each, Py_NewRef(parts[each]));
    }
    PyObject *made = PyCFunction_New(method, held);
    Py_DECREF(held);
    return made;
}

/* A module that says which source it was built from, so that an old build is not taken for a new one. */
static inline PyObject *new_module(struct PyModuleDef *definition)
{
    PyObject *module = PyModule_Create(definition);
    PyObject *source = module == NULL ? NULL : PyLong_FromUnsignedLong(SOURCE);
    if (source == NULL || PyModule_AddObjectRef(module, "SOURCE", source)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(source);
    return module;
}

#endif
