/* The instructions of a program, and the types of a program and its run. */
#pragma once

#include "../objects.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Each instruction with its operands: `w` a register that is written, `v` a register or (below zero) a constant that
 * is read, `j` where to jump, `c` a cursor, `*` how many `v` follow. */
#define INSTRUCTIONS(ONE)                                                                                         \
    ONE(MOVE, "wv")                                                                                               \
    ONE(JUMP, "j")                                                                                                \
    ONE(JUMP_IF_NONE, "vj")                                                                                       \
    ONE(JUMP_UNLESS_NONE, "vj")                                                                                   \
    ONE(JUMP_IF_TYPE, "vvj")                                                                                      \
    ONE(JUMP_UNLESS_TYPE, "vvj")                                                                                  \
    ONE(JUMP_IF_TRACKED, "vj")                                                                                    \
    ONE(JUMP_UNLESS_TRACKED, "vj")                                                                                \
    ONE(JUMP_IF_TRUE, "vj")                                                                                       \
    ONE(JUMP_UNLESS_TRUE, "vj")                                                                                   \
    ONE(JUMP_IF_IS, "vvj")                                                                                        \
    ONE(JUMP_UNLESS_IS, "vvj")                                                                                    \
    ONE(JUMP_IF_EQUAL, "vvj")                                                                                     \
    ONE(JUMP_UNLESS_EQUAL, "vvj")                                                                                 \
    ONE(JUMP_IF_LESS, "vvj")                                                                                      \
    ONE(JUMP_UNLESS_LESS, "vvj")                                                                                  \
    ONE(JUMP_IF_IN, "vvj")                                                                                        \
    ONE(JUMP_UNLESS_IN, "vvj")                                                                                    \
    ONE(FIND, "wvvj")                                                                                             \
    ONE(GET, "wvvv")                                                                                              \
    ONE(ITEM, "wvv")                                                                                              \
    ONE(SET_ITEM, "vvv")                                                                                          \
    ONE(DELETE_ITEM, "vv")                                                                                        \
    ONE(APPEND, "vv")                                                                                             \
    ONE(NEW_DICT, "w")                                                                                            \
    ONE(NEW_DICT_OF, "wvv")                                                                                       \
    ONE(NEW_LIST, "w*")                                                                                           \
    ONE(NEW_TUPLE, "w*")                                                                                          \
    ONE(TYPE, "wv")                                                                                               \
    ONE(LENGTH, "wv")                                                                                             \
    ONE(CALL, "wv*")                                                                                              \
    ONE(CALL_METHOD, "wv*")                                                                                       \
    ONE(ADD, "wvv")                                                                                               \
    ONE(SUBTRACT, "wvv")                                                                                          \
    ONE(MULTIPLY, "wvv")                                                                                          \
    ONE(ITERATE, "cv")                                                                                            \
    ONE(NEXT, "cwj")                                                                                              \
    ONE(NEXT_TWO, "cwwj")                                                                                         \
    ONE(NEXT_THREE, "cwwwj")                                                                                      \
    ONE(ITERATE_ITEMS, "cv")                                                                                      \
    ONE(NEXT_ITEM, "cwwj")                                                                                        \
    ONE(RETURN, "v")                                                                                              \
    ONE(RAISE, "v")

#define NUMBER(name, operands) name,
enum { INSTRUCTIONS(NUMBER) HOW_MANY };
#undef NUMBER

static const struct {
    const char *name, *operands;
} instructions[] = {
#define ENTRY(name, operands) {#name, operands},
    INSTRUCTIONS(ENTRY)
#undef ENTRY
};

#if defined(__GNUC__)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#else
#define LIKELY(condition) (condition)
#define UNLIKELY(condition) (condition)
#endif

#define MOST_REGISTERS 100000
#define ON_STACK 160
#define MOST_ARGUMENTS 64

typedef struct {
    PyObject *over;
    Py_ssize_t position, size;
} Cursor;

/* What happens to an exception: the register that gets it, and where to go on. */
typedef struct {
    PyObject *type;
    int32_t into, at;
} Handler;

typedef struct {
    PyObject ob_base;
    vectorcallfunc vectorcall;
    PyObject *constants;
    int32_t *code;
    Handler *handlers;
    Py_ssize_t length;
    int32_t required, arguments, registers, cursors, handler_count;
} Program;

typedef struct {
    PyObject **registers;
    Cursor *cursors;
    /* The exception that was being handled when a handler began, if one did. */
    PyObject *handled;
    bool handling;
} Frame;

static inline void put(PyObject **registers, int32_t place, PyObject *made)
{
    PyObject *old = registers[place];
    registers[place] = made;
    Py_XDECREF(old);
}

static inline bool is_none(PyObject *value)
{
    return value == NULL || value == Py_None;
}

static inline PyObject *real(PyObject *value)
{
    return value == NULL ? Py_None : value;
}
