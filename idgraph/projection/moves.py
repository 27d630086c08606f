"""Crossings that are the effect of a merge or a split: by the same events, the profiles of before would not have crossed.

A move counts until the crossings behind it are stored. A mark says up to which assignment of a fragment that is so: after a
crash between the two, a merge is still known as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from idgraph.model.ledger import CHANGES, Cause, Crossing
from idgraph.model.store import ProfileStore
from merge.identity.components import Member, Person

MOVES = f"moves:{CHANGES}"
"""Marks stand among the changes in segments. No segment has this name."""

_OTHERS = 1 << 24
"""A mark has the fragment's generation, then the sum of those of the others in its profile: a crash may leave assignments of
some of them alone."""

Inside = Mapping[str, bool]
"""By segment, whether a profile is in it."""
Crossed = Mapping[str, Mapping[str, int]]
"""As of `Ledger.crossed`."""


class Moves(NamedTuple):
    """`causes` has the crossings, by profile and segment, that moves cause. `marks` are appended behind all crossings."""

    causes: Mapping[tuple[str, str], Cause]
    marks: Sequence[Crossing]


def moves_of(
    store: ProfileStore,
    persons: Sequence[Person],
    inside: Mapping[str, Inside],
    evaluated: Callable[[Sequence[Person]], Mapping[str, Inside]],
) -> Moves:
    """The moves of these persons that no crossings follow yet. `inside` are the segments that each is in now; `evaluated` says
    the same of other persons. Raises StoreError."""
    joined = [each for each in persons if any(part.stored.epoch for part in each.members)]
    known: Crossed = store.crossed([each.id for each in joined]) if joined else {}
    moved = [each for each in joined if _mark(each) != _marked(known, each.id)]
    if not moved:
        return Moves({}, ())
    members = [part for each in moved for part in each.members]
    known = store.crossed([each.stored.id for each in members])
    names = {
        segment
        for each in moved
        for segment, is_inside in inside[each.id].items()
        if is_inside != _is_in(known, each.id, segment)
        or any(_is_in(known, part.stored.id, segment) for part in each.members[1:])
    }
    causes: dict[tuple[str, str], Cause] = {}
    if names:
        earlier = _earlier(store, moved, known)
        now = evaluated(list(earlier.values()))
        for person in moved:
            own = {part.stored.id for part in person.members}
            parts = [
                id_ for id_, each in earlier.items() if any(one.stored.id in own for one in each.members)
            ]
            for segment in names:
                was_in = any(_is_in(known, each, segment) for each in parts)
                is_in = any(now.get(each, {}).get(segment, False) for each in parts)
                moved_by: Cause = "merged" if len(parts) > 1 else "split"
                causes[person.id, segment] = "" if was_in != is_in else moved_by
                # Who was in under a fragment's id alone leaves under that.
                leaves = was_in and not is_in and not _is_in(known, person.id, segment)
                for each in person.members[1:]:
                    causes[each.stored.id, segment] = "" if leaves else "merged"
    marks = [Crossing(0, each.id, MOVES, _mark(each)) for each in moved]
    others = (part.stored for each in moved for part in each.members[1:])
    marks += [Crossing(0, each.id, MOVES, each.generation * _OTHERS) for each in others]
    return Moves(causes, marks)


def _earlier(store: ProfileStore, moved: Sequence[Person], known: Crossed) -> dict[str, Person]:
    """By id the profiles of before, with the fragments as they are now."""
    fragments = {store.name(part.stored.id): part for each in moved for part in each.members}
    ids = {name: each.stored.id for name, each in fragments.items()}
    entries: dict[bytes, dict[int, bytes]] = defaultdict(dict)
    for entry in store.ledger_of(sorted(ids.values())):
        # After an erasure epochs begin again: the later entry counts.
        entries[entry.fragment][entry.epoch] = entry.previous
    parts: dict[str, list[Member]] = defaultdict(list)
    for name, each in fragments.items():
        stored = each.stored
        behind = _marked(known, stored.id) // _OTHERS - (stored.generation - stored.epoch)
        pending = [epoch for epoch in entries[name] if behind < epoch <= stored.epoch]
        profile = entries[name][min(pending)] if pending else store.name(stored.projected_into)
        parts[ids.get(profile, profile.hex())].append(each)
    return {id_: Person(id_, tuple(each), ()) for id_, each in parts.items()}


def _mark(person: Person) -> int:
    own, *others = (each.stored.generation for each in person.members)
    return own * _OTHERS + sum(others) % _OTHERS


def _marked(known: Crossed, fragment: str) -> int:
    return known.get(fragment, {}).get(MOVES, 0)


def _is_in(known: Crossed, profile: str, segment: str) -> bool:
    """By the feed."""
    return known.get(profile, {}).get(segment, 0) % 2 == 1
