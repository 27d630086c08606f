/* Runs mapping functions: the second back end of generated code. transforms/spec/generation/lowering.py turns a verified
 * syntax tree into a program for the machine below; the function that Python's compiler makes of the same tree says
 * what is right, and tests/transforms/generation hold the two equal. See README.md.
 *
 * Why no program can crash: `Program` checks, before it keeps one, that every operand is a register, constant or
 * cursor that there is, and that every jump leads to the start of an instruction. An instruction looks at the types
 * of what it gets each time; what is not of the exact type that it is quick for goes to CPython's general function.
 *
 * A register holds a reference of its own; NULL in it is None. Nothing outlives a run.
 */
#include "programs/program.h"

#include "programs/machine.h"
#include "programs/reading.h"

#include <structmember.h>

/* ---- the call from Python ---- */

static PyObject *call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names)
{
    const Program *program = (Program *)self;
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if (given < program->required || given > program->arguments || (names && PyTuple_GET_SIZE(names))) {
        PyErr_Format(PyExc_TypeError, "%zd arguments where %d to %d are needed", given, program->required,
                     program->arguments);
        return NULL;
    }
    if (program->constants == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the collector has taken this program apart");
        return NULL;
    }
    PyObject *registers_here[ON_STACK];
    Cursor cursors_here[16];
    Frame frame = {registers_here, cursors_here, NULL, false};
    char *borrowed = NULL;
    size_t registers = (size_t)program->registers, cursors = (size_t)program->cursors;
    if (registers > ON_STACK || cursors > 16) {
        borrowed = PyMem_Malloc(registers * sizeof(PyObject *) + cursors * sizeof(Cursor));
        if (borrowed == NULL) {
            return PyErr_NoMemory();
        }
        frame.cursors = (Cursor *)borrowed;
        frame.registers = (PyObject **)(frame.cursors + cursors);
    }
    memset(frame.registers, 0, registers * sizeof(PyObject *));
    memset(frame.cursors, 0, cursors * sizeof(Cursor));
    for (Py_ssize_t place = 0; place < given; place++) {
        frame.registers[place] = Py_NewRef(arguments[place]);
    }
    Py_INCREF(self);
    PyObject *constants = Py_NewRef(program->constants);
    PyObject *result = run(program, constants, &frame);
    for (size_t place = 0; place < registers; place++) {
        Py_XDECREF(frame.registers[place]);
    }
    for (size_t place = 0; place < cursors; place++) {
        Py_XDECREF(frame.cursors[place].over);
    }
    if (frame.handling) {
        PyErr_SetHandledException(frame.handled);
        Py_XDECREF(frame.handled);
    }
    PyMem_Free(borrowed);
    Py_DECREF(constants);
    Py_DECREF(self);
    return result;
}

/* ---- the type ---- */

static int drop(PyObject *self)
{
    Program *program = (Program *)self;
    Py_CLEAR(program->constants);
    for (int32_t place = 0; place < program->handler_count; place++) {
        Py_CLEAR(program->handlers[place].type);
    }
    return 0;
}

static int visit_parts(PyObject *self, visitproc visit, void *arg)
{
    Program *program = (Program *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(program->constants);
    for (int32_t place = 0; place < program->handler_count; place++) {
        Py_VISIT(program->handlers[place].type);
    }
    return 0;
}

static void deallocate(PyObject *self)
{
    Program *program = (Program *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    drop(self);
    PyMem_Free(program->code);
    PyMem_Free(program->handlers);
    type->tp_free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(program_doc, "Program(code, constants, shape, handlers): a function of `shape[0]` to `shape[1]` arguments.\n\n"
                          "`shape` continues with how many registers and cursors there are; `handlers` are an\n"
                          "exception's type, the register that gets it and a place of the code each. Raises\n"
                          "ValueError for what is no program.");

static PyObject *new_program(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(names))
{
    PyObject *code, *constants, *handlers;
    int required, most, registers, cursors;
    if (!PyArg_ParseTuple(arguments, "O!O!(iiii)O!", &PyList_Type, &code, &PyTuple_Type, &constants, &required, &most,
                          &registers, &cursors, &PyTuple_Type, &handlers)) {
        return NULL;
    }
    if (required < 0 || required > most || most > registers || registers > MOST_REGISTERS || cursors < 0 ||
        cursors > MOST_REGISTERS) {
        PyErr_SetString(PyExc_ValueError, "no shape of a program");
        return NULL;
    }
    Program *made = (Program *)type->tp_alloc(type, 0);
    if (made == NULL) {
        return NULL;
    }
    made->vectorcall = call;
    made->constants = Py_NewRef(constants);
    made->required = required;
    made->arguments = most;
    made->registers = registers;
    made->cursors = cursors;
    if (read_code(made, code) || read_handlers(made, handlers) || check(made)) {
        Py_DECREF(made);
        return NULL;
    }
    return (PyObject *)made;
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Program, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc, (void *)program_doc}, {Py_tp_new, new_program},       {Py_tp_dealloc, deallocate},
    {Py_tp_traverse, visit_parts},    {Py_tp_clear, drop},            {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},         {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "idgraph.native._programs.Program",
    .basicsize = sizeof(Program),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = program_slots,
};

/* ---- the module ---- */

static int add_instructions(PyObject *module)
{
    PyObject *all = PyDict_New();
    if (all == NULL) {
        return -1;
    }
    for (int number = 0; number < HOW_MANY; number++) {
        PyObject *each = Py_BuildValue("(is)", number, instructions[number].operands);
        if (each == NULL || PyDict_SetItemString(all, instructions[number].name, each)) {
            Py_XDECREF(each);
            Py_DECREF(all);
            return -1;
        }
        Py_DECREF(each);
    }
    int failed = PyModule_AddObjectRef(module, "INSTRUCTIONS", all);
    Py_DECREF(all);
    return failed;
}

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_programs", "Runs mapping functions; see native/programs.c.", -1, NULL, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__programs(void)
{
    PyObject *module = new_module(&definition);
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&program_spec);
    if (text_get == NULL) {
        text_get = PyUnicode_InternFromString("get");
    }
    if (type == NULL || text_get == NULL || PyModule_AddObjectRef(module, "Program", type) ||
        add_instructions(module)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(type);
    return module;
}
