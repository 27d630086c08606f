/* Functions that mapping code calls for every event. Each has a reference in Python, which says what is right: the C one
 * does the common case and hands everything else to its reference. `@native.reference` stands at each reference. See README.md.
 */
#include "objects.h"

#include <stdint.h>
#include <string.h>

#define SMALL_INDEXES 64
#define LONG_KEY 128
#define LONGEST_INDEX 9

static PyObject *small_indexes[SMALL_INDEXES];

/* What an ASCII text holds, NULL for anything else. */
static const char *ascii(PyObject *value, Py_ssize_t *size)
{
    if (!PyUnicode_CheckExact(value) || !PyUnicode_IS_COMPACT_ASCII(value)) {
        return NULL;
    }
    *size = PyUnicode_GET_LENGTH(value);
    return (const char *)PyUnicode_1BYTE_DATA(value);
}

static bool is_digit(char character)
{
    return character >= '0' && character <= '9';
}

/* The number that so many digits spell, -1 if some are none. */
static long digits(const char *text, int count)
{
    long number = 0;
    for (int place = 0; place < count; place++) {
        if (!is_digit(text[place])) {
            return -1;
        }
        number = number * 10 + (text[place] - '0');
    }
    return number;
}

static PyObject *by_reference(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    return PyObject_Vectorcall(reference, arguments, (size_t)given, NULL);
}

/* ---- transforms.spec.pointers ---- */

static bool is_leap(long year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static long days_of(long year, long month)
{
    static const char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month == 2 && is_leap(year) ? 29 : days[month - 1];
}

/* Days from 1970-01-01, by the proleptic Gregorian calendar: years begin in March. */
static int64_t day_number(long year, long month, long day)
{
    year -= month <= 2;
    long era = year / 400, of_era = year % 400;
    long of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Minutes that an offset is east of Greenwich; false if it is none of the usual. */
static bool read_offset(const char *text, Py_ssize_t left, long *minutes)
{
    if (left == 1 && text[0] == 'Z') {
        *minutes = 0;
        return true;
    }
    if (left != 6 || (text[0] != '+' && text[0] != '-') || text[3] != ':') {
        return false;
    }
    long hour = digits(text + 1, 2), minute = digits(text + 4, 2);
    *minutes = (text[0] == '-' ? -1 : 1) * (hour * 60 + minute);
    return hour >= 0 && hour < 24 && minute >= 0 && minute < 60;
}

/* `2024-05-06T07:08:09Z`, with 3 or 6 digits of a second and another offset if need be. */
static bool read_time(const char *text, Py_ssize_t size, int64_t *milliseconds)
{
    if (size < 20 || text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != ' ') || text[13] != ':' ||
        text[16] != ':') {
        return false;
    }
    long year = digits(text, 4), month = digits(text + 5, 2), day = digits(text + 8, 2);
    long hour = digits(text + 11, 2), minute = digits(text + 14, 2), second = digits(text + 17, 2);
    if (year < 1000 || year > 9998 || month < 1 || month > 12 || day < 1 || day > days_of(year, month) || hour < 0 ||
        hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
        return false;
    }
    Py_ssize_t at = 19;
    long fraction = 0;
    if (text[at] == '.') {
        while (at + 1 < size && is_digit(text[at + 1])) {
            at++;
        }
        if (at != 22 && at != 25) {
            return false;
        }
        fraction = digits(text + 20, 3);
        at++;
    }
    long offset;
    if (!read_offset(text + at, size - at, &offset)) {
        return false;
    }
    int64_t minutes = day_number(year, month, day) * 1440 + hour * 60 + minute - offset;
    *milliseconds = (minutes * 60 + second) * 1000 + fraction;
    return true;
}

static PyObject *epoch_milliseconds(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    Py_ssize_t size;
    const char *text = given == 1 || given == 2 ? ascii(arguments[0], &size) : NULL;
    int64_t milliseconds;
    if (text != NULL && read_time(text, size, &milliseconds)) {
        return PyLong_FromLongLong(milliseconds);
    }
    return by_reference(reference, arguments, given);
}

/* ---- transforms.spec.jolt.functions.numeric, transforms.spec.jmespath.functions ---- */

/* Digits with one point among or behind them, or with none. So few of them that a division is exact: both numbers are
 * doubles without rounding, and the quotient is rounded once, as in reading. */
static bool read_decimal(const char *text, Py_ssize_t size, Py_ssize_t *point, double *number)
{
    static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int64_t whole = 0;
    *point = -1;
    if (size < 1 || size > 15) {
        return false;
    }
    for (Py_ssize_t place = 0; place < size; place++) {
        if (text[place] == '.' && *point < 0) {
            *point = place;
        } else if (is_digit(text[place])) {
            whole = whole * 10 + (text[place] - '0');
        } else {
            return false;
        }
    }
    if (size == 1 && *point == 0) {
        return false;
    }
    *number = (double)whole / powers[*point < 0 ? 0 : size - 1 - *point];
    return true;
}

static PyObject *read_double(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    Py_ssize_t size, point;
    double number;
    const char *text = given == 1 ? ascii(arguments[0], &size) : NULL;
    if (text != NULL && read_decimal(text, size, &point, &number)) {
        return PyFloat_FromDouble(number);
    }
    return by_reference(reference, arguments, given);
}

static PyObject *to_number_exact(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    Py_ssize_t size, point;
    double number;
    const char *text = given == 1 ? ascii(arguments[0], &size) : NULL;
    if (text != NULL && read_decimal(text, size, &point, &number) && point != 0 && point != size - 1) {
        return point < 0 ? PyLong_FromLongLong((long long)number) : PyFloat_FromDouble(number);
    }
    return by_reference(reference, arguments, given);
}

/* ---- transforms.spec.jolt.views ---- */

static PyObject *is_long_key(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    if (given == 1 && PyUnicode_CheckExact(arguments[0])) {
        return PyBool_FromLong(PyUnicode_GET_LENGTH(arguments[0]) > LONG_KEY);
    }
    return by_reference(reference, arguments, given);
}

static PyObject *has_long_key(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 1 || !PyDict_CheckExact(arguments[0])) {
        return by_reference(reference, arguments, given);
    }
    PyObject *key;
    Py_ssize_t position = 0;
    bool found = false;
    while (PyDict_Next(arguments[0], &position, &key, NULL)) {
        if (!PyUnicode_CheckExact(key)) {
            return by_reference(reference, arguments, given);
        }
        found |= PyUnicode_GET_LENGTH(key) > LONG_KEY;
    }
    return PyBool_FromLong(found);
}

static PyObject *members(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 1 || !PyList_CheckExact(arguments[0])) {
        return by_reference(reference, arguments, given);
    }
    /* Made before the list is looked at: with it the collector may run, and with that what changes the list. */
    PyObject *made = PyDict_New();
    if (made == NULL || PyList_GET_SIZE(arguments[0]) > SMALL_INDEXES) {
        Py_XDECREF(made);
        return made == NULL ? NULL : by_reference(reference, arguments, given);
    }
    for (Py_ssize_t place = 0; made != NULL && place < PyList_GET_SIZE(arguments[0]); place++) {
        if (PyDict_SetItem(made, small_indexes[place], PyList_GET_ITEM(arguments[0], place))) {
            Py_CLEAR(made);
        }
    }
    return made;
}

static long small_index(PyObject *value)
{
    Py_ssize_t size;
    const char *text = ascii(value, &size);
    return text != NULL && size > 0 && size <= LONGEST_INDEX ? digits(text, (int)size) : -1;
}

static PyObject *checked_index(PyObject *reference, PyObject *const *arguments, Py_ssize_t given)
{
    if (given == 1 && small_index(arguments[0]) >= 0) {
        return Py_NewRef(arguments[0]);
    }
    return by_reference(reference, arguments, given);
}

/* ---- references by name ---- */

#define REFERENCE(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef references[] = {
    REFERENCE(epoch_milliseconds), REFERENCE(read_double),  REFERENCE(to_number_exact), REFERENCE(members),
    REFERENCE(is_long_key),        REFERENCE(has_long_key), REFERENCE(checked_index),
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(reference_doc, "reference(name, function): the function of this name, which calls its reference in Python where it must.\n"
                       "Raises LookupError if there is none.");

static PyObject *reference(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *name;
    PyObject *function;
    if (!PyArg_ParseTuple(arguments, "sO", &name, &function)) {
        return NULL;
    }
    for (PyMethodDef *each = references; each->ml_name != NULL; each++) {
        if (strcmp(each->ml_name, name) == 0) {
            return PyCFunction_New(each, function);
        }
    }
    PyErr_Format(PyExc_LookupError, "there is no function '%s'", name);
    return NULL;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"reference", reference, METH_VARARGS, reference_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_functions", "Functions of mapping code; see native/functions.c.", -1, functions, NULL,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__functions(void)
{
    for (int index = 0; index < SMALL_INDEXES && small_indexes[index] == NULL; index++) {
        small_indexes[index] = PyUnicode_FromFormat("%d", index);
        if (small_indexes[index] == NULL) {
            return NULL;
        }
        PyUnicode_InternInPlace(&small_indexes[index]);
    }
    return new_module(&definition);
}
