/* Reading a program out of Python's objects, and refusing what is none. */
#pragma once

#include "program.h"

typedef struct {
    const Program *program;
    int32_t registers, cursors, constants;
} Bounds;

static bool is_operand(const Bounds *bounds, char kind, int32_t operand)
{
    switch (kind) {
        case 'w':
            return operand >= 0 && operand < bounds->registers;
        case 'v':
            return operand >= 0 ? operand < bounds->registers : ~operand < bounds->constants;
        case 'c':
            return operand >= 0 && operand < bounds->cursors;
        default:
            return true;
    }
}

/* The length of the instruction at a place, with its operands checked but for jumps; 0 if it is none. */
static Py_ssize_t instruction_size(const Bounds *bounds, Py_ssize_t at)
{
    const int32_t *code = bounds->program->code;
    Py_ssize_t left = bounds->program->length - at, size = 1;
    if (code[at] < 0 || code[at] >= HOW_MANY) {
        return 0;
    }
    for (const char *kind = instructions[code[at]].operands; *kind; kind++, size++) {
        if (size >= left) {
            return 0;
        }
        if (*kind == '*') {
            int32_t more = code[at + size];
            if (more < 0 || more > MOST_ARGUMENTS || more >= left - size) {
                return 0;
            }
            for (int32_t place = 1; place <= more; place++) {
                if (!is_operand(bounds, 'v', code[at + size + place])) {
                    return 0;
                }
            }
            size += more;
        } else if (!is_operand(bounds, *kind, code[at + size])) {
            return 0;
        }
    }
    return code[at] == CALL_METHOD && code[at + 3] == 0 ? 0 : size;
}

static bool ends_here(int32_t instruction)
{
    return instruction == RETURN || instruction == RAISE || instruction == JUMP;
}

/* Whether every jump leads to one of the places where an instruction starts. */
static bool jumps_are_right(const Program *program, const char *starts)
{
    for (Py_ssize_t at = 0; at < program->length;) {
        const char *kind = instructions[program->code[at]].operands;
        at++;
        for (; *kind; kind++, at++) {
            int32_t operand = program->code[at];
            if (*kind == '*') {
                at += operand;
            } else if (*kind == 'j' && (operand < 0 || operand >= program->length || !starts[operand])) {
                return false;
            }
        }
    }
    for (int32_t place = 0; place < program->handler_count; place++) {
        int32_t at = program->handlers[place].at;
        if (at < 0 || at >= program->length || !starts[at]) {
            return false;
        }
    }
    return true;
}

static int check(const Program *program)
{
    Bounds bounds = {program, program->registers, program->cursors, (int32_t)PyTuple_GET_SIZE(program->constants)};
    char *starts = PyMem_Calloc((size_t)program->length + 1, 1);
    if (starts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int32_t last = -1;
    Py_ssize_t at = 0;
    while (at < program->length) {
        Py_ssize_t size = instruction_size(&bounds, at);
        if (size == 0) {
            break;
        }
        starts[at] = 1;
        last = program->code[at];
        at += size;
    }
    bool is_right = at == program->length && at > 0 && ends_here(last) && jumps_are_right(program, starts);
    PyMem_Free(starts);
    if (!is_right) {
        PyErr_Format(PyExc_ValueError, "no program: see the instruction at %zd", at);
        return -1;
    }
    return 0;
}

static int read_code(Program *program, PyObject *code)
{
    program->length = PyList_GET_SIZE(code);
    program->code = PyMem_Calloc((size_t)program->length + 1, sizeof(int32_t));
    if (program->code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0; place < program->length; place++) {
        long number = PyLong_AsLong(PyList_GET_ITEM(code, place));
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (number < INT32_MIN || number > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a number of the code is out of range");
            return -1;
        }
        program->code[place] = (int32_t)number;
    }
    return 0;
}

static int read_handlers(Program *program, PyObject *handlers)
{
    Py_ssize_t count = PyTuple_GET_SIZE(handlers);
    program->handlers = PyMem_Calloc((size_t)count + 1, sizeof(Handler));
    if (program->handlers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *type;
        int into, at;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(handlers, place), "Oii", &type, &into, &at)) {
            return -1;
        }
        if (!PyExceptionClass_Check(type) || into < 0 || into >= program->registers) {
            PyErr_SetString(PyExc_ValueError, "no handler");
            return -1;
        }
        program->handlers[place] = (Handler){Py_NewRef(type), into, at};
        program->handler_count++;
    }
    return 0;
}
