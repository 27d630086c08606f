/* Looking up keys of objects: where one stood before, and all that a spec wants at once. */
#pragma once

#include "program.h"

#define TRUST 8
#define TRIES 64

/* Notes where a key stands. */
static void learn(PyObject *dict, PyObject *value, PyObject *key, Hint *hint)
{
    PyObject *known, *found;
    Py_ssize_t place = 0, position = 0;
    hint->tries--;
    while (PyDict_Next(dict, &place, &known, &found)) {
        if (found == value && PyUnicode_CheckExact(known) && PyUnicode_Compare(known, key) == 0) {
            Py_XSETREF(hint->key, Py_NewRef(known));
            hint->position = position;
            hint->trust = TRUST;
            return;
        }
        position = place;
    }
}

/* The value at a key of a dict, borrowed; NULL, with or without an exception, if there is none. */
static inline PyObject *look_up(PyObject *dict, PyObject *key, Hint *hint)
{
    if (hint == NULL) {
        return PyDict_GetItemWithError(dict, key);
    }
    if (hint->trust > 0) {
        PyObject *known, *value;
        Py_ssize_t position = hint->position;
        if (LIKELY(PyDict_Next(dict, &position, &known, &value) && known == hint->key)) {
            return value;
        }
        hint->trust--;
    }
    PyObject *value = PyDict_GetItemWithError(dict, key);
    if (value != NULL && hint->trust == 0 && hint->tries > 0 && PyUnicode_CheckExact(key)) {
        learn(dict, value, key, hint);
    }
    return value;
}

/* ---- shapes ---- */

static Shape *new_shape(const Site *site, PyObject **keys, Py_ssize_t size)
{
    Py_ssize_t wanted = PyTuple_GET_SIZE(site->wanted);
    Shape *made = PyMem_Calloc(1, sizeof(Shape) + (size_t)size * sizeof(PyObject *));
    int16_t *positions = PyMem_Calloc((size_t)wanted + 1, sizeof(int16_t));
    if (made == NULL || positions == NULL) {
        PyMem_Free(made);
        PyMem_Free(positions);
        return NULL;
    }
    made->size = size;
    made->positions = positions;
    for (Py_ssize_t place = 0; place < size; place++) {
        made->keys[place] = Py_NewRef(keys[place]);
    }
    for (Py_ssize_t number = 0; number < wanted; number++) {
        positions[number] = ABSENT;
        for (Py_ssize_t place = 0; place < size; place++) {
            if (PyUnicode_Compare(PyTuple_GET_ITEM(site->wanted, number), keys[place]) == 0) {
                positions[number] = (int16_t)place;
            }
        }
    }
    return made;
}

static void free_shape(Shape *shape)
{
    for (Py_ssize_t place = 0; place < shape->size; place++) {
        Py_DECREF(shape->keys[place]);
    }
    PyMem_Free(shape->positions);
    PyMem_Free(shape);
}

static bool is_short(PyObject **keys, Py_ssize_t size)
{
    Py_ssize_t characters = 0;
    for (Py_ssize_t place = 0; place < size; place++) {
        characters += PyUnicode_GET_LENGTH(keys[place]);
    }
    return characters <= LONGEST_KEYS;
}

/* The shape with these keys, of which `mixed` is a digest; NULL where there is no room for one more. */
static const Shape *shape_of(Site *site, PyObject **keys, Py_ssize_t size, uint64_t mixed)
{
    size_t first = (size_t)(mixed >> 32) % MOST_SHAPES;
    for (int number = 0; number < 2; number++) {
        size_t place = first ^ (size_t)number;
        Shape *shape = site->shapes[place];
        if (shape == NULL) {
            return site->shapes[place] = is_short(keys, size) ? new_shape(site, keys, size) : NULL;
        }
        if (shape->size == size && memcmp(shape->keys, keys, (size_t)size * sizeof(PyObject *)) == 0) {
            return shape;
        }
    }
    return NULL;
}

/* Looks at all keys of an object at once, and fetches what stands there: it was made long ago. */
static void scan_object(Site *site, Scan *scan, PyObject *object)
{
    scan->shape = NULL;
    if (!PyDict_CheckExact(object) || PyDict_GET_SIZE(object) > MOST_KEYS) {
        return;
    }
    PyObject *keys[MOST_KEYS], *value;
    Py_ssize_t size = 0, position = 0;
    uint64_t mixed = 0;
    while (size < MOST_KEYS && PyDict_Next(object, &position, &keys[size], &value)) {
        FETCH(value);
        mixed = (mixed ^ (uintptr_t)keys[size] >> 4) * 0x9E3779B97F4A7C15U;
        /* Where something was removed, places are not counted as they are here. */
        if (position != ++size || !PyUnicode_CheckExact(keys[size - 1])) {
            return;
        }
    }
    scan->object = object;
    scan->version = VERSION(object);
    scan->shape = shape_of(site, keys, size, mixed);
}

/* As `look_up`, for the key of this number that the scan's site wants. Where one stood is seen when it is read there;
 * that one is still absent only the version tells: another name of the object may have removed one key and set
 * another. */
static inline PyObject *look_up_scanned(const Scan *scan, PyObject *object, PyObject *key, int32_t number)
{
    const Shape *shape = scan->shape;
    if (LIKELY(shape != NULL && scan->object == object && PyDict_GET_SIZE(object) == shape->size)) {
        Py_ssize_t position = shape->positions[number];
        if (position == ABSENT) {
            if (LIKELY(HAS_VERSION(object, scan->version))) {
                return NULL;
            }
        } else {
            PyObject *known, *value, *expected = shape->keys[position];
            if (LIKELY(PyDict_Next(object, &position, &known, &value) && known == expected)) {
                return value;
            }
        }
    }
    return PyDict_GetItemWithError(object, key);
}
