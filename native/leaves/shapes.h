/* How events' leaves are written that are those of an event before them. */
#pragma once

#include "walking.h"

#include <stdint.h>

/* Most events have the leaves of one before them. `keys` are paths in the order in which they were collected, held, so
 * that no other object takes their place; `order` gives, for each place in the state, that of its leaf among them, and
 * `ends` where what stands before its value ends in `begins`. While it has users it is not replaced. */
#define MOST_REMEMBERED 96
#define SHAPES 256
struct shape {
    int size, users;
    PyObject *keys[MOST_REMEMBERED];
    uint8_t order[MOST_REMEMBERED];
    size_t ends[MOST_REMEMBERED];
    struct output begins;
};
static struct shape shapes[SHAPES];

static struct shape *shape_at(const struct collected *collected)
{
    uint64_t hash = 0;
    for (int each = 0; each < collected->size; each++) {
        hash = (hash ^ (uintptr_t)collected->leaves[each].of.key) * 0x9E3779B97F4A7C15ULL;
    }
    return &shapes[hash >> 56];
}

static bool has_shape(const struct collected *collected, const struct shape *shape)
{
    bool is_same = collected->size == shape->size;
    for (int each = 0; is_same && each < collected->size; each++) {
        is_same = collected->leaves[each].of.key == shape->keys[each];
    }
    return is_same;
}

static int leaves_in_order(const void *one, const void *other)
{
    return in_order(&(*(const struct leaf *const *)one)->of, &(*(const struct leaf *const *)other)->of);
}

static void sort_leaves(const struct collected *collected, const struct leaf **sorted)
{
    for (int each = 0; each < collected->size; each++) {
        sorted[each] = &collected->leaves[each];
    }
    qsort(sorted, (size_t)collected->size, sizeof *sorted, leaves_in_order);
}

/* Writes what stands before each value: whether no key has something to escape, for which Python would be asked. */
static bool write_begins(struct shape *shape, const struct leaf *const *sorted, int size)
{
    shape->begins.size = 0;
    for (int each = 0; each < size; each++) {
        struct output *begins = &shape->begins;
        if (put_character(begins, each ? ',' : '{') || put_text(begins, sorted[each]->of.text, sorted[each]->of.size) != 1 ||
            put(begins, ":[0", 3)) {
            return false;
        }
        shape->ends[each] = begins->size;
    }
    return true;
}

static void forget_shape(struct shape *shape)
{
    while (shape->size) {
        Py_DECREF(shape->keys[--shape->size]);
    }
}

/* The shape of what was collected; NULL for none that is remembered. */
static struct shape *shape_of(const struct collected *collected)
{
    if (!collected->size || collected->size > MOST_REMEMBERED) {
        return NULL;
    }
    struct shape *shape = shape_at(collected);
    if (has_shape(collected, shape)) {
        return shape;
    }
    if (shape->users) {
        return NULL;
    }
    const struct leaf *sorted[MOST_REMEMBERED];
    forget_shape(shape);
    sort_leaves(collected, sorted);
    if (!write_begins(shape, sorted, collected->size)) {
        PyErr_Clear();
        return NULL;
    }
    shape->size = collected->size;
    for (int each = 0; each < collected->size; each++) {
        shape->keys[each] = Py_NewRef(collected->leaves[each].of.key);
        shape->order[each] = (uint8_t)(sorted[each] - collected->leaves);
    }
    return shape;
}

static int put_kind_and_value(struct output *output, const struct leaf *leaf, PyObject *encode)
{
    if (put(output, leaf->kind == deleted ? ",0," : ",1,", 3) || put_value(output, leaf->of.value, encode)) {
        return -1;
    }
    return put_character(output, ']');
}

static int put_as_before(struct output *output, const struct collected *collected, const struct shape *shape,
                         PyObject *encode)
{
    size_t start = 0;
    for (int each = 0; each < collected->size; each++) {
        if (put(output, shape->begins.bytes + start, shape->ends[each] - start) ||
            put_kind_and_value(output, &collected->leaves[shape->order[each]], encode)) {
            return -1;
        }
        start = shape->ends[each];
    }
    return put_character(output, '}');
}
