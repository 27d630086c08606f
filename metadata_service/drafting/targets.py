"""Targets of leaves in the unified schema: an attribute of the same name, a usual place, or a path of their own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from idgraph.model import paths
from metadata_service.drafting.sample import NAMES, SampleLeaf, words


class DraftTarget(NamedTuple):
    """A path, why, and how sure that is, from 0 to 1."""

    path: str
    reason: str
    confidence: float


class _Known(NamedTuple):
    """An attribute: words above its last key, and of the event that it is about, as in `activity.purchase.total`."""

    path: str
    type: str
    around: frozenset[str]
    of_event: tuple[str, ...]


_WRAPPERS, _GENERIC = frozenset(NAMES["wrappers"]), frozenset(NAMES["generic"])
PLAIN = re.compile(r"[^\W_]\w*(\.[^\W_]\w*)*")
"""Paths that mean the same in a spec."""
_PLACES = {tuple(name.split()): path for path, names in NAMES["places"].items() for name in names}
_OF_PERSONS = _WRAPPERS.union(NAMES["persons"], NAMES["address kinds"], NAMES["of persons"])
_COMMON = {paths.split(path)[0] for path in _PLACES.values()} | {"activity"}

_PLACES_OF_PERSONS = ("address.", "identity.", "demographics.")


def camel(*parts: str) -> str:
    """Words as one key."""
    return parts[0] + "".join(part.capitalize() for part in parts[1:])


def own_path(leaf: SampleLeaf, root: str, skipped: int = 0) -> str:
    """The keys of the leaf as they are, without mere wrappers, below a root."""
    keys = [words(key) for key in leaf.keys[skipped:]]
    kept = [key for key in keys[:-1] if key[-1] not in _WRAPPERS]
    return paths.join([*paths.split(root), *(camel(*key) for key in (*kept, keys[-1]))])


def without_those_of_others(known: Mapping[str, str], source: str, sources: Iterable[str]) -> dict[str, str]:
    """Attributes but those below the name of another source, or how it begins: `slack`, of `Slack.AuditLogs`."""
    others = set[str]().union(*map(_beginnings, sources)) - _beginnings(source)
    roots = {paths.split(path)[0] for path in known} - _COMMON
    taken = {root for root in roots if "".join(words(root)) in others}
    return {path: kind for path, kind in known.items() if paths.split(path)[0] not in taken}


def _beginnings(name: str) -> set[str]:
    joined = "".join(words(name))
    return {joined[:length] for length in range(1, len(joined) + 1)}


class Targets:
    """Finds places among known attributes, which are given by path with their types."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._by_name: dict[tuple[str, ...], list[_Known]] = defaultdict(list)
        for path, data_type in known.items():
            keys = [words(key) for key in paths.split(path)]
            of_event = keys[1] if keys[0] == ("activity",) and len(keys) > 2 else ()
            around = frozenset(word for key in keys[:-1] for word in key)
            if keys[-1] and PLAIN.fullmatch(path):
                self._by_name[keys[-1]].append(_Known(path, data_type, around, of_event))

    def find(self, leaf: SampleLeaf, context: tuple[str, ...] = ()) -> DraftTarget | None:
        """`context` are words that stand for the event, such as its name."""
        found = self._known(leaf, context)
        if found is not None or context:
            return found
        around = tuple(word for key in leaf.keys for word in words(key))
        for length in range(min(4, len(around)), 0, -1):
            path = _PLACES.get(around[-length:])
            if path is not None:
                kind = next((each for each in NAMES["address kinds"] if each in leaf.around), None)
                owners = set(around[:-length]) - _OF_PERSONS
                if owners and not kind and path.startswith(_PLACES_OF_PERSONS):
                    return None  # The city of a shop is no person's.
                if path.startswith("address.") and kind:
                    path = f"address.{kind}.{path.rpartition('.')[2]}"
                return DraftTarget(path, "the usual place for what is named so", 0.8)
        return None

    def _known(self, leaf: SampleLeaf, context: tuple[str, ...]) -> DraftTarget | None:
        """The attribute of the same name which shares most of the words above it. A name that says nothing by itself, such as
        `id`, needs one of those: the id of a cart is not that of an order."""
        parent = words(leaf.keys[-2]) if len(leaf.keys) > 1 else ()
        # The id of a cart is its `cartId`; under the name of an event, the total of the cart is that of the purchase.
        tried = [(2, (*parent, *leaf.words)), (1, leaf.words)]
        tried += [(0, leaf.words[1:])] if context else []
        ranked = []
        for rank, name in tried:
            above = leaf.around - set(name)
            is_clear = not set(name) <= _GENERIC and above <= _WRAPPERS
            for each in self._by_name.get(name, ()):
                shared = len(each.around & above)
                is_alike = each.type == leaf.type or {each.type, leaf.type} == {"integer", "number"}
                is_of_it = context[-len(each.of_event) :] == each.of_event if context else not each.of_event
                if is_alike and is_of_it and (shared or is_clear or context):
                    ranked.append((rank, len(each.of_event), shared, each.path))
        ranked.sort(reverse=True)
        if not ranked or (len(ranked) > 1 and ranked[0][:3] == ranked[1][:3]):
            return None
        return DraftTarget(ranked[0][3], "an attribute of this name and type", 0.9 if ranked[0][0] else 0.7)
