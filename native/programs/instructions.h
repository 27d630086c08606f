/* The instructions of the machine; transforms/generation/ emits them. */
#pragma once

#include <stddef.h>

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
