/* Bytes that grow, and what is put there. */
#ifndef IDGRAPH_OUTPUT_H
#define IDGRAPH_OUTPUT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

struct output {
    char *bytes;
    size_t size, room;
};

/* Room for so many bytes more, at its end; NULL with an exception. */
static inline char *more(struct output *output, size_t size)
{
    if (output->bytes == NULL || size > output->room - output->size) {
        size_t room = output->room * 2 + size + 64;
        char *bytes = room > PY_SSIZE_T_MAX ? NULL : PyMem_Realloc(output->bytes, room);
        if (bytes == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        output->bytes = bytes;
        output->room = room;
    }
    return output->bytes + output->size;
}

static inline int put(struct output *output, const void *bytes, size_t size)
{
    char *end = more(output, size);
    if (end == NULL) {
        return -1;
    }
    memcpy(end, bytes, size);
    output->size += size;
    return 0;
}

static inline int put_character(struct output *output, char character)
{
    return put(output, &character, 1);
}

#endif
