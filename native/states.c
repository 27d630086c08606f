/* States as their bytes (merge.codec): joined, and looked into, without an object for each register. Each function
 * has a twin in Python, named above it, which says what is right; tests/properties/test_native_states.py holds
 * the two equal. See README.md.
 *
 * What is read here was written by merge.codec.encode, and its checksum was compared. All the same no byte is
 * trusted: whatever is not as expected gives None, and the twin says what it is.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE 0
#endif

/* Fragments of people have some ten of each; others go to the twin. */
#define MOST_ORIGINS 64
#define MOST_IDENTIFIERS 32
#define MOST_REGISTERS 1024
#define DEEPEST 32
/* What is longer is not remembered. */
#define LONGEST_PATH 256
/* Before the JSON of a state stand its format and its checksum, which the caller has looked at. */
#define HEADER 5
enum { DELETED, PLAIN, SEALED, KINDS };

/* ---- reading ---- */

struct text {
    const char *start;
    Py_ssize_t size;
};

struct origin {
    long long priority, ordinal, version;
    struct text source, event, spec, whole;
};

/* `value` is JSON; `kind` is one of the first KINDS. */
struct entry {
    struct text path, value;
    int origin, kind;
};

struct named {
    struct text name;
    int origin;
};

struct state {
    int origins_size, registers_size, identifiers_size;
    struct origin origins[MOST_ORIGINS];
    struct named identifiers[MOST_IDENTIFIERS];
    struct entry registers[MOST_REGISTERS];
};

/* `end` is behind the last byte. */
struct reader {
    const char *at, *end;
};

static bool take(struct reader *reader, char expected)
{
    if (reader->at >= reader->end || *reader->at != expected) {
        return false;
    }
    reader->at++;
    return true;
}

static bool is_next(const struct reader *reader, char expected)
{
    return reader->at < reader->end && *reader->at == expected;
}

/* A number as JSON has it, of at most 18 digits, which 64 bits hold. */
static bool take_number(struct reader *reader, long long *number)
{
    bool is_negative = take(reader, '-');
    const char *start = reader->at;
    *number = 0;
    for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
        if (reader->at - start == 18) {
            return false;
        }
        *number = *number * 10 + (*reader->at - '0');
    }
    Py_ssize_t size = reader->at - start;
    if (!size || (*start == '0' && (size > 1 || is_negative))) {
        return false;
    }
    *number = is_negative ? -*number : *number;
    return true;
}

static bool take_place(struct reader *reader, int size, int *place)
{
    long long number;
    if (!take_number(reader, &number) || number < 0 || number >= size) {
        return false;
    }
    *place = (int)number;
    return true;
}

/* A text in quotes with nothing escaped in it: what is between them. */
static bool take_text(struct reader *reader, struct text *text)
{
    if (!take(reader, '"')) {
        return false;
    }
    const char *end = memchr(reader->at, '"', (size_t)(reader->end - reader->at));
    if (end == NULL || memchr(reader->at, '\\', (size_t)(end - reader->at)) != NULL) {
        return false;
    }
    *text = (struct text){reader->at, end - reader->at};
    reader->at = end + 1;
    return true;
}

static bool skip_quoted(struct reader *reader)
{
    for (reader->at++; reader->at < reader->end; reader->at++) {
        if (*reader->at == '\\') {
            reader->at++;
        }
        else if (*reader->at == '"') {
            reader->at++;
            return true;
        }
    }
    return false;
}

/* Any JSON value: all up to the comma or bracket that follows it. */
static bool take_value(struct reader *reader, struct text *value)
{
    const char *start = reader->at;
    int depth = 0;
    while (reader->at < reader->end) {
        char each = *reader->at;
        if (each == '"') {
            if (!skip_quoted(reader)) {
                return false;
            }
            continue;
        }
        if (!depth && (each == ',' || each == ']' || each == '}')) {
            break;
        }
        depth += each == '[' || each == '{';
        depth -= each == ']' || each == '}';
        reader->at++;
    }
    *value = (struct text){start, reader->at - start};
    return reader->at < reader->end && reader->at > start;
}

static int compare_texts(const struct text *one, const struct text *other)
{
    Py_ssize_t shorter = one->size < other->size ? one->size : other->size;
    int order = memcmp(one->start, other->start, (size_t)shorter);
    return order ? order : (one->size > other->size) - (one->size < other->size);
}

/* As Python compares two origins: texts in UTF-8 are in the order of their characters. */
static int compare_origins(const struct origin *one, const struct origin *other)
{
    int order = (one->priority > other->priority) - (one->priority < other->priority);
    order = order ? order : (one->ordinal > other->ordinal) - (one->ordinal < other->ordinal);
    order = order ? order : compare_texts(&one->source, &other->source);
    order = order ? order : compare_texts(&one->event, &other->event);
    order = order ? order : compare_texts(&one->spec, &other->spec);
    return order ? order : (one->version > other->version) - (one->version < other->version);
}

static bool read_origin(struct reader *reader, struct origin *origin)
{
    const char *start = reader->at;
    if (!take(reader, '[') || !take_number(reader, &origin->priority) || !take(reader, ',') ||
        !take_number(reader, &origin->ordinal) || !take(reader, ',') || !take_text(reader, &origin->source) ||
        !take(reader, ',') || !take_text(reader, &origin->event) || !take(reader, ',') ||
        !take_text(reader, &origin->spec) || !take(reader, ',') || !take_number(reader, &origin->version) ||
        !take(reader, ']')) {
        return false;
    }
    origin->whole = (struct text){start, reader->at - start};
    return true;
}

static bool read_origins(struct reader *reader, struct state *state)
{
    state->origins_size = 0;
    if (!take(reader, '[')) {
        return false;
    }
    while (!is_next(reader, ']')) {
        int size = state->origins_size;
        if (size == MOST_ORIGINS || (size && !take(reader, ',')) || !read_origin(reader, &state->origins[size]) ||
            (size && compare_origins(&state->origins[size - 1], &state->origins[size]) >= 0)) {
            return false;
        }
        state->origins_size++;
    }
    return take(reader, ']');
}

static bool read_register(struct reader *reader, const struct state *state, struct entry *entry)
{
    return take_text(reader, &entry->path) && take(reader, ':') && take(reader, '[') &&
           take_place(reader, state->origins_size, &entry->origin) && take(reader, ',') &&
           take_place(reader, KINDS, &entry->kind) && take(reader, ',') && take_value(reader, &entry->value) &&
           take(reader, ']');
}

static bool read_registers(struct reader *reader, struct state *state)
{
    state->registers_size = 0;
    if (!take(reader, '{')) {
        return false;
    }
    while (!is_next(reader, '}')) {
        int size = state->registers_size;
        struct entry *entry = &state->registers[size];
        if (size == MOST_REGISTERS || (size && !take(reader, ',')) || !read_register(reader, state, entry) ||
            (size && compare_texts(&entry[-1].path, &entry->path) >= 0)) {
            return false;
        }
        state->registers_size++;
    }
    return take(reader, '}');
}

/* Into as many as MOST_IDENTIFIERS; `found` is how many there are. */
static bool read_identifiers(struct reader *reader, int origins_size, struct named *identifiers, int *found)
{
    *found = 0;
    if (!take(reader, '{')) {
        return false;
    }
    while (!is_next(reader, '}')) {
        int size = *found;
        struct named *named = &identifiers[size];
        if (size == MOST_IDENTIFIERS || (size && !take(reader, ',')) || !take_text(reader, &named->name) ||
            !take(reader, ':') || !take_place(reader, origins_size, &named->origin) ||
            (size && compare_texts(&named[-1].name, &named->name) >= 0)) {
            return false;
        }
        ++*found;
    }
    return take(reader, '}');
}

/* Whether some path lies below another one: it begins with that and a dot. What begins alike stands together. */
static bool is_nested(const struct entry *registers, int size)
{
    const struct text *open[DEEPEST];
    int depth = 0;
    for (int each = 0; each < size; each++) {
        const struct text *path = &registers[each].path;
        while (depth && (open[depth - 1]->size >= path->size ||
                         memcmp(open[depth - 1]->start, path->start, (size_t)open[depth - 1]->size))) {
            depth--;
        }
        for (int above = 0; above < depth; above++) {
            if (path->start[open[above]->size] == '.') {
                return true;
            }
        }
        if (depth == DEEPEST) {
            return true;
        }
        open[depth++] = path;
    }
    return false;
}

/* Whether these bytes are, behind their header, a state of the common form: without markers, no path below another. */
static bool read_state(PyObject *data, Py_ssize_t header, struct state *state)
{
    struct reader reader = {PyBytes_AS_STRING(data) + header, PyBytes_AS_STRING(data) + PyBytes_GET_SIZE(data)};
    return PyBytes_GET_SIZE(data) >= header && take(&reader, '[') && read_origins(&reader, state) && take(&reader, ',') &&
           read_registers(&reader, state) && take(&reader, ',') && take(&reader, '[') && take(&reader, ']') &&
           take(&reader, ',') &&
           read_identifiers(&reader, state->origins_size, state->identifiers, &state->identifiers_size) &&
           take(&reader, ']') &&
           reader.at == reader.end && !is_nested(state->registers, state->registers_size);
}

static bool are_bytes(PyObject *const *arguments, Py_ssize_t size)
{
    for (Py_ssize_t each = 0; each < size; each++) {
        if (!PyBytes_CheckExact(arguments[each])) {
            PyErr_SetString(PyExc_TypeError, "bytes are needed");
            return false;
        }
    }
    return true;
}

static bool check_arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "%zd arguments where %zd are needed", given, wanted);
    }
    return given == wanted;
}

/* ---- merge.fragments.FragmentState.join, normalise and merge.codec.encode ---- */

/* Two states and what is joined of them. A rank is the place of an origin among those of both. */
struct join {
    struct state sides[2], joined;
    const struct origin *ranked[2 * MOST_ORIGINS];
    int ranks[2][MOST_ORIGINS], places[2 * MOST_ORIGINS];
    int ranked_size;
};

static void rank_origins(struct join *join)
{
    const struct state *one = &join->sides[0], *other = &join->sides[1];
    int i = 0, j = 0, rank = 0;
    for (; i < one->origins_size || j < other->origins_size; rank++) {
        int order = i == one->origins_size     ? 1
                    : j == other->origins_size ? -1
                                               : compare_origins(&one->origins[i], &other->origins[j]);
        join->ranked[rank] = order <= 0 ? &one->origins[i] : &other->origins[j];
        if (order <= 0) {
            join->ranks[0][i++] = rank;
        }
        if (order >= 0) {
            join->ranks[1][j++] = rank;
        }
    }
    join->ranked_size = rank;
}

/* The side whose register stays: 0, 1, or -1 for the twin to say. */
static int winner(const struct join *join, const struct entry *one, const struct entry *other)
{
    int rank = join->ranks[0][one->origin], rank_of_other = join->ranks[1][other->origin];
    if (rank != rank_of_other) {
        return rank < rank_of_other;
    }
    return one->kind == other->kind && !compare_texts(&one->value, &other->value) ? 0 : -1;
}

static bool join_registers(struct join *join)
{
    const struct state *one = &join->sides[0], *other = &join->sides[1];
    struct state *joined = &join->joined;
    int i = 0, j = 0;
    joined->registers_size = 0;
    while (i < one->registers_size || j < other->registers_size) {
        const struct entry *a = &one->registers[i], *b = &other->registers[j];
        int order = i == one->registers_size     ? 1
                    : j == other->registers_size ? -1
                                                 : compare_texts(&a->path, &b->path);
        int side = order ? order > 0 : winner(join, a, b);
        if (side < 0 || joined->registers_size == MOST_REGISTERS) {
            return false;
        }
        struct entry *entry = &joined->registers[joined->registers_size++];
        *entry = side ? *b : *a;
        entry->origin = join->ranks[side][entry->origin];
        i += order <= 0;
        j += order >= 0;
    }
    return !is_nested(joined->registers, joined->registers_size);
}

static bool join_identifiers(struct join *join)
{
    const struct state *one = &join->sides[0], *other = &join->sides[1];
    struct state *joined = &join->joined;
    int i = 0, j = 0;
    joined->identifiers_size = 0;
    while (i < one->identifiers_size || j < other->identifiers_size) {
        const struct named *a = &one->identifiers[i], *b = &other->identifiers[j];
        int order = i == one->identifiers_size     ? 1
                    : j == other->identifiers_size ? -1
                                                   : compare_texts(&a->name, &b->name);
        if (joined->identifiers_size == MOST_IDENTIFIERS) {
            return false;
        }
        /* The earliest evidence stays. */
        int rank = order <= 0 ? join->ranks[0][a->origin] : INT_MAX;
        int rank_of_other = order >= 0 ? join->ranks[1][b->origin] : INT_MAX;
        joined->identifiers[joined->identifiers_size++] =
            (struct named){order <= 0 ? a->name : b->name, rank <= rank_of_other ? rank : rank_of_other};
        i += order <= 0;
        j += order >= 0;
    }
    return true;
}

static char *put(char *end, const char *bytes, Py_ssize_t size)
{
    memcpy(end, bytes, (size_t)size);
    return end + size;
}

/* A place is below 128. */
static char *put_place(char *end, int place)
{
    if (place >= 100) {
        *end++ = '1';
        place -= 100;
        *end++ = (char)('0' + place / 10);
    }
    else if (place >= 10) {
        *end++ = (char)('0' + place / 10);
    }
    *end++ = (char)('0' + place % 10);
    return end;
}

static char *put_key(char *end, char before, const struct text *key)
{
    *end++ = before;
    *end++ = '"';
    end = put(end, key->start, key->size);
    return put(end, "\":", 2);
}

/* Gives each origin that something still comes from its place, the others -1; gives how many there are. */
static int place_origins(struct join *join)
{
    const struct state *joined = &join->joined;
    int size = 0;
    memset(join->places, 0, sizeof join->places);
    for (int each = 0; each < joined->registers_size; each++) {
        join->places[joined->registers[each].origin] = 1;
    }
    for (int each = 0; each < joined->identifiers_size; each++) {
        join->places[joined->identifiers[each].origin] = 1;
    }
    for (int rank = 0; rank < join->ranked_size; rank++) {
        join->places[rank] = join->places[rank] ? size++ : -1;
    }
    return size;
}

static char *put_origins(char *end, struct join *join)
{
    place_origins(join);
    end = put(end, "[[", 2);
    for (int rank = 0; rank < join->ranked_size; rank++) {
        if (join->places[rank] >= 0) {
            if (join->places[rank]) {
                *end++ = ',';
            }
            end = put(end, join->ranked[rank]->whole.start, join->ranked[rank]->whole.size);
        }
    }
    return put(end, "],", 2);
}

static char *put_registers(char *end, const struct join *join)
{
    const struct state *joined = &join->joined;
    if (!joined->registers_size) {
        *end++ = '{';
    }
    for (int each = 0; each < joined->registers_size; each++) {
        const struct entry *entry = &joined->registers[each];
        char kind[] = {',', (char)('0' + entry->kind), ','};
        end = put_key(end, each ? ',' : '{', &entry->path);
        *end++ = '[';
        end = put_place(end, join->places[entry->origin]);
        end = put(end, kind, sizeof kind);
        end = put(end, entry->value.start, entry->value.size);
        *end++ = ']';
    }
    return put(end, "},[],", 5);
}

static char *put_identifiers(char *end, const struct join *join)
{
    const struct state *joined = &join->joined;
    if (!joined->identifiers_size) {
        *end++ = '{';
    }
    for (int each = 0; each < joined->identifiers_size; each++) {
        end = put_key(end, each ? ',' : '{', &joined->identifiers[each].name);
        end = put_place(end, join->places[joined->identifiers[each].origin]);
    }
    return put(end, "}]", 2);
}

/* Room for `join` and `join_all` alone, which run no Python and make no object that the collector knows: with those may run
 * finalizers and other threads, and with them another join. */
static struct join workplace;

/* Whether the sides could be joined. */
static bool join_sides(struct join *join)
{
    rank_origins(join);
    return join_registers(join) && join_identifiers(join);
}

/* `all` is how many bytes the states have that were joined. */
static PyObject *write_joined(struct join *join, Py_ssize_t all)
{
    /* Nothing is written that is not in one of them, but for places of up to three digits in place of one. */
    Py_ssize_t most = all + 2 * (join->joined.registers_size + join->joined.identifiers_size) + 16;
    PyObject *made = PyBytes_FromStringAndSize(NULL, most);
    if (made == NULL) {
        return NULL;
    }
    char *end = put_origins(PyBytes_AS_STRING(made), join);
    end = put_registers(end, join);
    end = put_identifiers(end, join);
    _PyBytes_Resize(&made, end - PyBytes_AS_STRING(made));
    return made;
}

PyDoc_STRVAR(join_doc, "join(one, other): the JSON of the join of two states; None for the twin to say.");

static PyObject *join(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 2) || !are_bytes(arguments, 2)) {
        return NULL;
    }
    struct join *join = &workplace;
    if (!read_state(arguments[0], HEADER, &join->sides[0]) || !read_state(arguments[1], HEADER, &join->sides[1])) {
        Py_RETURN_NONE;
    }
    if (!join_sides(join)) {
        Py_RETURN_NONE;
    }
    return write_joined(join, PyBytes_GET_SIZE(arguments[0]) + PyBytes_GET_SIZE(arguments[1]));
}

/* Makes the joined state the first side of the next join, with those of its origins that something comes from. */
static bool go_on(struct join *join)
{
    struct state *joined = &join->joined, *side = &join->sides[0];
    static struct origin origins[MOST_ORIGINS];
    int size = place_origins(join);
    if (size > MOST_ORIGINS) {
        return false;
    }
    for (int rank = 0; rank < join->ranked_size; rank++) {
        if (join->places[rank] >= 0) {
            origins[join->places[rank]] = *join->ranked[rank];
        }
    }
    memcpy(side->origins, origins, (size_t)size * sizeof *origins);
    memcpy(side->registers, joined->registers, (size_t)joined->registers_size * sizeof *joined->registers);
    memcpy(side->identifiers, joined->identifiers, (size_t)joined->identifiers_size * sizeof *joined->identifiers);
    side->origins_size = size;
    side->registers_size = joined->registers_size;
    side->identifiers_size = joined->identifiers_size;
    for (int each = 0; each < side->registers_size; each++) {
        side->registers[each].origin = join->places[side->registers[each].origin];
    }
    for (int each = 0; each < side->identifiers_size; each++) {
        side->identifiers[each].origin = join->places[side->identifiers[each].origin];
    }
    return true;
}

PyDoc_STRVAR(join_all_doc, "join_all(bodies): the JSON of the join of several states, a tuple of what is behind their\n"
                           "headers; None for the twin to say.");

static PyObject *join_all(PyObject *Py_UNUSED(module), PyObject *bodies)
{
    if (!PyTuple_CheckExact(bodies) || PyTuple_GET_SIZE(bodies) < 2) {
        PyErr_SetString(PyExc_TypeError, "a tuple of two states or more is needed");
        return NULL;
    }
    Py_ssize_t number = PyTuple_GET_SIZE(bodies), all = 0;
    if (!are_bytes(((PyTupleObject *)bodies)->ob_item, number)) {
        return NULL;
    }
    struct join *join = &workplace;
    bool is_common = read_state(PyTuple_GET_ITEM(bodies, 0), 0, &join->sides[0]);
    for (Py_ssize_t each = 1; is_common && each < number; each++) {
        is_common = (each == 1 || go_on(join)) && read_state(PyTuple_GET_ITEM(bodies, each), 0, &join->sides[1]) &&
                    join_sides(join);
    }
    for (Py_ssize_t each = 0; each < number; each++) {
        all += PyBytes_GET_SIZE(PyTuple_GET_ITEM(bodies, each));
    }
    if (!is_common) {
        Py_RETURN_NONE;
    }
    return write_joined(join, all);
}

/* ---- frozenset(merge.codec.decode(...).identifiers) ---- */

PyDoc_STRVAR(identifiers_doc, "identifiers(data): the identifiers of a state, a tuple; None for the twin to say.");

static PyObject *identifiers(PyObject *Py_UNUSED(module), PyObject *data)
{
    if (!are_bytes(&data, 1)) {
        return NULL;
    }
    struct named found[MOST_IDENTIFIERS];
    int size;
    const char *start = PyBytes_AS_STRING(data), *end = start + PyBytes_GET_SIZE(data);
    /* They come last, and neither a brace nor a quotation mark stands in the places behind them: so the last
     * `},[],{` that parses to the end is where they begin, unless one stands in an identifier. */
    struct reader reader = {NULL, end};
    for (const char *at = end - 2; at - 5 > start + HEADER; at--) {
        if (!memcmp(at - 5, "},[],{", 6)) {
            reader.at = at;
            break;
        }
    }
    if (reader.at == NULL || !read_identifiers(&reader, MOST_ORIGINS, found, &size) || !take(&reader, ']') ||
        reader.at != end) {
        Py_RETURN_NONE;
    }
    PyObject *made = PyTuple_New(size);
    for (int each = 0; made != NULL && each < size; each++) {
        const struct text *name = &found[each].name;
        PyObject *item = PyUnicode_DecodeUTF8(name->start, name->size, NULL);
        if (item == NULL) {
            Py_CLEAR(made);
            break;
        }
        PyTuple_SET_ITEM(made, each, item);
    }
    return made;
}

/* ---- merge.documents._fields ---- */

/* A JSON number that is a plain int or float: NULL without an exception for others. */
static PyObject *number_of(const struct text *value)
{
    struct reader reader = {value->start, value->start + value->size};
    long long whole;
    if (take_number(&reader, &whole) && reader.at == reader.end) {
        return PyLong_FromLongLong(whole);
    }
    char digits[32];
    if (value->size >= (Py_ssize_t)sizeof digits || !memchr(value->start, '.', (size_t)value->size)) {
        return NULL;
    }
    memcpy(digits, value->start, (size_t)value->size);
    digits[value->size] = 0;
    char *end;
    double number = PyOS_string_to_double(digits, &end, NULL);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return NULL;
    }
    return *end || !isfinite(number) || fabs(number) < 1e-300 ? NULL : PyFloat_FromDouble(number);
}

/* A value that the index holds as it is: NULL without an exception for others. */
static PyObject *scalar_of(const struct text *value)
{
    char first = value->start[0];
    if (first == '"') {
        if (memchr(value->start, '\\', (size_t)value->size) != NULL) {
            return NULL;
        }
        return PyUnicode_DecodeUTF8(value->start + 1, value->size - 2, NULL);
    }
    if (value->size == 4 && !memcmp(value->start, "true", 4)) {
        return Py_NewRef(Py_True);
    }
    if (value->size == 5 && !memcmp(value->start, "false", 5)) {
        return Py_NewRef(Py_False);
    }
    return first == '-' || (first >= '0' && first <= '9') ? number_of(value) : NULL;
}

/* The token of a sealed value, as model.sealed says, or None: NULL without an exception for odd ones. */
static PyObject *token_of(const struct text *value)
{
    const char *end = value->start + value->size - 1;
    if (value->size < 2 || *value->start != '"' || memchr(value->start, '\\', (size_t)value->size) != NULL) {
        return NULL;
    }
    const char *dot = memchr(value->start, '.', (size_t)value->size);
    return dot == NULL || dot + 1 == end ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8(dot + 1, end - dot - 1, NULL);
}

/* Whom to ask about values, and whether one of them raised. */
struct asked {
    PyObject *is_indexable, *odd;
    bool has_raised;
};

/* What the index may know of a register; None for nothing. */
static PyObject *field(const struct entry *entry, PyObject *path, struct asked *asked)
{
    if (entry->kind == SEALED) {
        PyObject *token = token_of(&entry->value);
        if (token != NULL || PyErr_Occurred()) {
            return token;
        }
    }
    if (entry->kind == PLAIN) {
        PyObject *answer = PyObject_CallOneArg(asked->is_indexable, path);
        int indexable = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        if (indexable <= 0) {
            asked->has_raised = indexable < 0;
            return indexable < 0 ? NULL : Py_NewRef(Py_None);
        }
        PyObject *value = scalar_of(&entry->value);
        if (value != NULL || PyErr_Occurred()) {
            return value;
        }
    }
    PyObject *shown = PyObject_CallFunction(asked->odd, "iy#", entry->kind, entry->value.start, entry->value.size);
    asked->has_raised = shown == NULL;
    return shown;
}

/* Paths that were seen lately, by their hash: most states have the same ones, and a text that is there need not be
 * made, nor hashed again where it is looked up. */
#define PATHS 1024
static PyObject *seen_paths[PATHS];

/* A new reference; NULL with an exception for what is not valid UTF-8. */
static PyObject *path_of(const struct text *text)
{
    uint32_t hash = 2166136261u;
    for (Py_ssize_t each = 0; each < text->size; each++) {
        hash = (hash ^ (unsigned char)text->start[each]) * 16777619u;
    }
    PyObject **seen = &seen_paths[(hash ^ hash >> 16) & (PATHS - 1)];
    if (*seen != NULL && PyUnicode_GET_LENGTH(*seen) == text->size &&
        !memcmp(PyUnicode_1BYTE_DATA(*seen), text->start, (size_t)text->size)) {
        return Py_NewRef(*seen);
    }
    PyObject *path = PyUnicode_DecodeUTF8(text->start, text->size, NULL);
    if (path != NULL && PyUnicode_IS_ASCII(path) && text->size <= LONGEST_PATH) {
        Py_XSETREF(*seen, Py_NewRef(path));
    }
    return path;
}

static int set_field(PyObject *fields, const struct entry *entry, struct asked *asked)
{
    PyObject *path = path_of(&entry->path);
    PyObject *value = path == NULL ? NULL : field(entry, path, asked);
    int failed = value == NULL || (value != Py_None && PyDict_SetItem(fields, path, value));
    Py_XDECREF(path);
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(fields_doc, "fields(data, is_indexable, odd): what the index may know of a state, by path; odd(kind, json)\n"
                         "says what stands for a value that is no plain scalar. None for the twin to say.");

static PyObject *fields(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    if (!check_arguments(given, 3) || !are_bytes(arguments, 1)) {
        return NULL;
    }
    struct state *state = PyMem_Malloc(sizeof *state);
    if (state == NULL) {
        return PyErr_NoMemory();
    }
    if (!read_state(arguments[0], HEADER, state)) {
        PyMem_Free(state);
        Py_RETURN_NONE;
    }
    struct asked asked = {arguments[1], arguments[2], false};
    PyObject *made = PyDict_New();
    for (int each = 0; made != NULL && each < state->registers_size; each++) {
        if (state->registers[each].kind != DELETED && set_field(made, &state->registers[each], &asked)) {
            Py_CLEAR(made);
        }
    }
    PyMem_Free(state);
    /* Text that is none the twin finds damaged; what those that were asked raise is theirs. */
    if (made == NULL && !asked.has_raised && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return made;
}

static PyMethodDef methods[] = {
    {"join", (PyCFunction)(void (*)(void))join, METH_FASTCALL, join_doc},
    {"join_all", join_all, METH_O, join_all_doc},
    {"identifiers", identifiers, METH_O, identifiers_doc},
    {"fields", (PyCFunction)(void (*)(void))fields, METH_FASTCALL, fields_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_states", "States as their bytes.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__states(void)
{
    PyObject *module = PyModule_Create(&definition);
    /* Which source this was built from, so that an old build is not taken for a new one. */
    PyObject *source = module == NULL ? NULL : PyLong_FromUnsignedLong(SOURCE);
    if (source == NULL || PyModule_AddObjectRef(module, "SOURCE", source)) {
        Py_CLEAR(module);
    }
    Py_XDECREF(source);
    return module;
}
