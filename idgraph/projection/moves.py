"""The next crossings of profiles; and which are the effect of a merge or a split: by the same events, the profiles of before
would not have crossed.

The state of a profile is 1 in a segment, 0 elsewhere. That of an attribute's value is a keyed hash, 1 without a value, and 0
where nothing is known of it: the first value is no change.

A move counts until the crossings behind it are stored. A mark says up to which assignment of a fragment that is so: after a
crash between the two, a merge is still known as one.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from idgraph.model import canonical
from idgraph.model.index import IndexDocument
from idgraph.model.ledger import CHANGES, VALUES, Cause, Crossing
from idgraph.model.store import ProfileStore
from idgraph.model.tombstones import TombstoneNames
from merge.identity.components import Member, Person

MOVES = f"moves:{CHANGES}"
"""Marks stand among the changes in segments. No segment has this name."""

_OTHERS = 1 << 24
"""A mark has the fragment's generation, then the sum of those of the others in its profile: a crash may leave assignments of
some of them alone."""

_NO_VALUE = 1
_STATES = 1 << 31

States = Mapping[str, int]
"""By segment."""
Crossed = Mapping[str, Mapping[str, int]]
"""As of `Ledger.crossed`."""


class Moves(NamedTuple):
    """`causes` has the crossings, by profile and segment, that moves cause. `marks` are appended behind all crossings."""

    causes: Mapping[tuple[str, str], Cause]
    marks: Sequence[Crossing]


def moves_of(
    store: ProfileStore,
    persons: Sequence[Person],
    states: Mapping[str, States],
    evaluated: Callable[[Sequence[Person]], Mapping[str, States]],
) -> Moves:
    """The moves of these persons that no crossings follow yet. `states` are those of each now; `evaluated` gives
    those of other persons. Raises StoreError."""
    joined = [each for each in persons if any(part.stored.epoch for part in each.members)]
    known: Crossed = store.crossed([each.id for each in joined]) if joined else {}
    moved = [each for each in joined if _mark(each) != _marked(known, each.id)]
    if not moved:
        return Moves({}, ())
    members = [part for each in moved for part in each.members]
    known = store.crossed([each.stored.id for each in members])
    causes: dict[tuple[str, str], Cause] = {
        (part.stored.id, segment): "merged"
        for each in moved
        for part in each.members[1:]
        for segment in states[each.id]
    }
    crossing = {each.id: found for each in moved if (found := _crossing(each, states[each.id], known))}
    if crossing:
        earlier, earlier_of = _earlier(store, moved, known)
        parts_of = {
            each.id: sorted({earlier_of[part.stored.id] for part in each.members})
            for each in moved
            if each.id in crossing
        }
        asked = sorted({id_ for parts in parts_of.values() for id_ in parts})
        now = evaluated([Person(id_, tuple(earlier[id_]), ()) for id_ in asked])
        for person in moved:
            for segment in crossing.get(person.id, ()):
                parts = parts_of[person.id]
                state_of = {each: now[each][segment] for each in parts if each in now}
                was_in = any(_state(known, each, segment) for each in parts)
                is_in = any(state_of.values())
                is_change = was_in != is_in
                if segment.startswith(VALUES):
                    is_change = any(_differs(known, each, segment, state) for each, state in state_of.items())
                moved_by: Cause = "merged" if len(parts) > 1 else "split"
                causes[person.id, segment] = "" if is_change else moved_by
                if was_in and not is_in and not _state(known, person.id, segment):
                    # She was in under another fragment's id alone, and leaves under that.
                    causes |= {(each.stored.id, segment): "" for each in person.members[1:]}
    marks = [Crossing(0, each.id, MOVES, _mark(each)) for each in moved]
    others = (part.stored for each in moved for part in each.members[1:])
    marks += [Crossing(0, each.id, MOVES, each.generation * _OTHERS) for each in others]
    return Moves(causes, marks)


def _crossing(person: Person, states: States, known: Crossed) -> list[str]:
    """The segments that a person enters or leaves, under whichever id."""
    others = [each.stored.id for each in person.members[1:]]
    return [
        segment
        for segment, state in states.items()
        if _differs(known, person.id, segment, state)
        or (not _state(known, person.id, segment) and any(_state(known, each, segment) for each in others))
    ]


def _earlier(
    store: ProfileStore, moved: Sequence[Person], known: Crossed
) -> tuple[dict[str, list[Member]], dict[str, str]]:
    """By id the profiles of before, with the fragments as they are now; and by fragment the profile."""
    fragments = {store.name(part.stored.id): part for each in moved for part in each.members}
    ids = {name: each.stored.id for name, each in fragments.items()}
    entries: dict[bytes, dict[int, bytes]] = defaultdict(dict)
    for entry in store.ledger_of(sorted(ids.values())):
        # After an erasure epochs begin again: the later entry counts.
        entries[entry.fragment][entry.epoch] = entry.previous
    parts: dict[str, list[Member]] = defaultdict(list)
    profile_of: dict[str, str] = {}
    for name, each in fragments.items():
        stored = each.stored
        behind = _marked(known, stored.id) // _OTHERS - (stored.generation - stored.epoch)
        pending = [epoch for epoch in entries[name] if behind < epoch <= stored.epoch]
        profile = entries[name][min(pending)] if pending else store.name(stored.projected_into)
        profile_of[stored.id] = ids.get(profile, profile.hex())
        parts[profile_of[stored.id]].append(each)
    return parts, profile_of


def _mark(person: Person) -> int:
    own, *others = (each.stored.generation for each in person.members)
    return own * _OTHERS + sum(others) % _OTHERS


def _marked(known: Crossed, fragment: str) -> int:
    return known.get(fragment, {}).get(MOVES, 0)


def value_state(names: TombstoneNames, document: IndexDocument, segment: str, path: str) -> int:
    """The state of an attribute's value."""
    if (value := document.fields.get(path)) is None:
        return _NO_VALUE
    text = canonical.encode([document.id, segment, value]).decode()
    return _NO_VALUE + 1 + zlib.crc32(names(text)) % (_STATES - 2)


def next_of(
    profile: str, segment: str, numbers: Mapping[str, int], state: int, cause: Cause
) -> list[Crossing]:
    """The crossings of a profile that comes into this state, none if it is in it. `numbers` are those of its last crossings."""
    known = {profile: numbers}
    if not _differs(known, profile, segment, state):
        return []
    if not segment.startswith(VALUES):
        return [Crossing(0, profile, segment, numbers.get(segment, 0) + 1, cause=cause)]
    number = max(numbers.get(segment + CHANGES, 0) // _STATES, 1)
    has_changed = state and _state(known, profile, segment)
    later = Crossing(0, profile, segment + CHANGES, (number + 1) * _STATES + state)
    return [Crossing(0, profile, segment, number, cause=cause), later] if has_changed else [later]


def _state(known: Crossed, profile: str, segment: str) -> int:
    """By the feed."""
    numbers = known.get(profile, {})
    if segment.startswith(VALUES):
        return numbers.get(segment + CHANGES, 0) % _STATES
    return numbers.get(segment, 0) % 2


def _differs(known: Crossed, profile: str, segment: str, state: int) -> bool:
    was = _state(known, profile, segment)
    return state != (was or _NO_VALUE if segment.startswith(VALUES) and state else was)
