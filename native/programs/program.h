/* The instructions of a program, and the types of a program and its run. */
#pragma once

#include "../objects.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Each instruction with its operands: `w` a register that is written, `v` a register or (below zero) a constant that
 * is read, `j` where to jump, `i` a number, `n` a counter, `c` a cursor, `s` a site, `h` a hint (-1 for
 * none: one holds for one constant key), `*` how many `v` follow. */
#define INSTRUCTIONS(ONE)                                                                                         \
    ONE(MOVE, "wv")                                                                                               \
    ONE(JUMP, "j")                                                                                                \
    ONE(JUMP_IF_NONE, "vj")                                                                                       \
    ONE(JUMP_UNLESS_NONE, "vj")                                                                                   \
    ONE(JUMP_IF_TYPE, "vvj")                                                                                      \
    ONE(JUMP_UNLESS_TYPE, "vvj")                                                                                  \
    ONE(JUMP_IF_TRACKED, "vj")                                                                                    \
    ONE(JUMP_UNLESS_TRACKED, "vj")                                                                                \
    ONE(JUMP_UNLESS_ANY_TRACKED, "vj")                                                                            \
    ONE(JUMP_IF_TRUE, "vj")                                                                                       \
    ONE(JUMP_UNLESS_TRUE, "vj")                                                                                   \
    ONE(JUMP_IF_IS, "vvj")                                                                                        \
    ONE(JUMP_UNLESS_IS, "vvj")                                                                                    \
    ONE(JUMP_IF_EQUAL, "vvj")                                                                                     \
    ONE(JUMP_UNLESS_EQUAL, "vvj")                                                                                 \
    ONE(JUMP_IF_LESS, "vvj")                                                                                      \
    ONE(JUMP_UNLESS_LESS, "vvj")                                                                                  \
    ONE(JUMP_UNLESS_SHORTER, "vij")                                                                               \
    ONE(JUMP_UNLESS_LONGER, "vij")                                                                                \
    ONE(JUMP_IF_IN, "vvj")                                                                                        \
    ONE(JUMP_UNLESS_IN, "vvj")                                                                                    \
    ONE(FIND, "wvvhj")                                                                                            \
    ONE(SCAN, "sv")                                                                                               \
    ONE(FIND_SCANNED, "wvvsij")                                                                                   \
    ONE(GET_SCANNED, "wvvvsi")                                                                                    \
    ONE(JUMP_UNLESS_NONE_AT, "vvj")                                                                               \
    ONE(GET, "wvvvh")                                                                                             \
    ONE(ITEM, "wvvh")                                                                                             \
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
    ONE(COUNTER, "ni")                                                                                            \
    ONE(TAKE, "nvi")                                                                                              \
    ONE(JUMP_UNLESS_BELOW, "nij")                                                                                 \
    ONE(COUNTED, "wn")                                                                                            \
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

/* Where a key stood in the object before: as a rule the next one has it at the same place, as the same object. */
typedef struct {
    PyObject *key;
    Py_ssize_t position;
    int trust, tries;
} Hint;

typedef struct {
    PyObject *over;
    Py_ssize_t position, size;
} Cursor;

#define MOST_KEYS 48
#define MOST_SHAPES 32
#define LONGEST_KEYS 4096
#define ABSENT (-1)

/* The keys that an object of the event has, as objects, and where among them the keys of a spec are. */
typedef struct {
    Py_ssize_t size;
    int16_t *positions;
    PyObject *keys[];
} Shape;

/* Looks for some keys of the spec in objects at one place of it, which are of few shapes. */
typedef struct {
    PyObject *wanted;
    /* Once there, a shape stays: a run in another thread may be using it. */
    Shape *shapes[MOST_SHAPES];
} Site;

/* What a site found in the object that it looked at last, and that object's version then. */
typedef struct {
    const Shape *shape;
    PyObject *object;
    uint64_t version;
} Scan;

/* A number that changes whenever a dict does, and that no other dict has. Python 3.12 deprecates it; without it a
 * key that was not there is looked up. */
#if PY_VERSION_HEX < 0x030C0000
#define VERSION(dict) (((PyDictObject *)(dict))->ma_version_tag)
#define HAS_VERSION(dict, version) (VERSION(dict) == (version))
#else
#define VERSION(dict) 0
#define HAS_VERSION(dict, version) ((void)(version), false)
#endif

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
    Hint *hints;
    Site *sites;
    Handler *handlers;
    Py_ssize_t length;
    int32_t required, arguments, registers, counters, cursors, hint_count, site_count, handler_count;
} Program;

typedef struct {
    PyObject **registers;
    int64_t *counters;
    Cursor *cursors;
    Scan *scans;
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
