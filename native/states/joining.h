/* merge.fragments.FragmentState.join and normalise: two states become one, not written yet. */
#pragma once

#include "reading.h"

#include <limits.h>

/* Two states and what is joined of them. A rank is the place of an origin among those of both. */
struct join {
    struct state sides[2], joined;
    const struct origin *ranked[2 * MOST_ORIGINS];
    int ranks[2][MOST_ORIGINS], places[2 * MOST_ORIGINS];
    int ranked_size;
    /* How many registers were walked again by one more state. */
    long long walked;
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

/* The side whose register stays: 0, 1, or -1 for the reference to say. */
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

static bool join_sightings(struct join *join)
{
    const struct state *one = &join->sides[0], *other = &join->sides[1];
    struct state *joined = &join->joined;
    int i = 0, j = 0;
    joined->sightings_size = 0;
    while (i < one->sightings_size || j < other->sightings_size) {
        const struct sighting *a = &one->sightings[i], *b = &other->sightings[j];
        int order = i == one->sightings_size     ? 1
                    : j == other->sightings_size ? -1
                                                 : compare_texts(&a->key, &b->key);
        if (joined->sightings_size == MOST_SIGHTINGS) {
            return false;
        }
        int oldest = order <= 0 ? join->ranks[0][a->oldest] : INT_MAX;
        int oldest_of_other = order >= 0 ? join->ranks[1][b->oldest] : INT_MAX;
        int newest = order <= 0 ? join->ranks[0][a->newest] : -1;
        int newest_of_other = order >= 0 ? join->ranks[1][b->newest] : -1;
        joined->sightings[joined->sightings_size++] =
            (struct sighting){order <= 0 ? a->key : b->key, oldest <= oldest_of_other ? oldest : oldest_of_other,
                              newest >= newest_of_other ? newest : newest_of_other};
        i += order <= 0;
        j += order >= 0;
    }
    return true;
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
    for (int each = 0; each < joined->sightings_size; each++) {
        join->places[joined->sightings[each].oldest] = 1;
        join->places[joined->sightings[each].newest] = 1;
    }
    for (int rank = 0; rank < join->ranked_size; rank++) {
        join->places[rank] = join->places[rank] ? size++ : -1;
    }
    return size;
}

/* Room for `join_all` and `EventStates` alone, which run no Python and make no object that the collector knows: with those may run
 * finalizers and other threads, and with them another join. */
static struct join workplace;

static struct join *room_to_join(void)
{
    workplace.walked = 0;
    return &workplace;
}

/* Whether the sides could be joined. */
static bool join_sides(struct join *join)
{
    rank_origins(join);
    return join_registers(join) && join_identifiers(join) && join_sightings(join);
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
    memcpy(side->sightings, joined->sightings, (size_t)joined->sightings_size * sizeof *joined->sightings);
    side->origins_size = size;
    side->sightings_size = joined->sightings_size;
    side->registers_size = joined->registers_size;
    side->identifiers_size = joined->identifiers_size;
    for (int each = 0; each < side->registers_size; each++) {
        side->registers[each].origin = join->places[side->registers[each].origin];
    }
    for (int each = 0; each < side->identifiers_size; each++) {
        side->identifiers[each].origin = join->places[side->identifiers[each].origin];
    }
    for (int each = 0; each < side->sightings_size; each++) {
        struct sighting *sighting = &side->sightings[each];
        sighting->oldest = join->places[sighting->oldest];
        sighting->newest = join->places[sighting->newest];
    }
    return true;
}

/* The reference walks only what an event has, in the time of some hundred registers here. */
enum { WALKED_AN_EVENT = 512, WALKED_AT_LEAST = 1 << 18 };

/* Joins one more state to the first side, or to what was joined to that already: whether it could be. */
static bool join_one(struct join *join, Py_ssize_t joined_before, struct text json)
{
    join->walked += joined_before ? join->joined.registers_size : 0;
    if (join->walked > WALKED_AT_LEAST + WALKED_AN_EVENT * (long long)joined_before) {
        return false;
    }
    return (!joined_before || go_on(join)) && read_state(json, &join->sides[1]) && join_sides(join);
}
