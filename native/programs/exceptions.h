/* Exceptions, as handlers of a program take them. */
#pragma once

#include "program.h"

static PyObject *raised(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Where the code goes on after an exception, -1 if nowhere. */
static int32_t handle(const Program *program, Frame *frame)
{
    if (frame->handling) {
        return -1;
    }
    for (int32_t place = 0; place < program->handler_count; place++) {
        const Handler *handler = &program->handlers[place];
        /* The collector may have taken it. */
        if (handler->type != NULL && PyErr_ExceptionMatches(handler->type)) {
            PyObject *error = raised();
            frame->handling = true;
            frame->handled = PyErr_GetHandledException();
            PyErr_SetHandledException(error);
            put(frame->registers, handler->into, error);
            return handler->at;
        }
    }
    return -1;
}

/* `raise error from None`, while another may be handled. */
static void raise_alone(PyObject *error)
{
    if (!PyExceptionInstance_Check(error)) {
        PyErr_SetString(PyExc_TypeError, "exceptions must derive from BaseException");
        return;
    }
    PyException_SetCause(error, NULL);
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
}
