"""Statistics of each leaf in sample events: its number of events, its types, and the shape of its values."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.model import canonical
from metadata_service.specs.rules import check_payload
from transforms.schema.detection import shaped_key, tests_of
from transforms.spec.pointers import epoch_milliseconds

NAMES: dict[str, Any] = json.loads(Path(__file__).with_name("names.json").read_bytes())
"""Meanings of names, as words in lower case."""
MOST_LEAVES = 500
MOST_KEYS = 20
MOST_VALUES = 100
"""Values per leaf whose shape is looked at."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_DECIMAL = r"-?\d{1,15}(\.\d{1,15})?"
_NO_NUMBERS = {"version", "build", "release", "ip", "zip", "code", "postcode", "phone"}
_TYPES = {str: "string", bool: "boolean", int: "integer", list: "array"}


def words(key: str) -> tuple[str, ...]:
    """`userID` and `user_id` are the same two words."""
    return tuple(word.lower() for word in _WORD.findall(key))


class SampleLeaf:
    """One place of the payloads that holds values. `events` has one bit for each event that has it, `words` are those of its
    last key, `around` of all its keys."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.words = words(keys[-1])
        self.around = frozenset(word for key in keys for word in words(key))
        self.events = 0
        self.values: list[Any] = []
        self.distinct: set[bytes] = set()
        self._types: Counter[str] = Counter()

    def add(self, event: int, value: Any) -> None:
        """A value that the event of this number has there."""
        self.events |= 1 << event
        self._types[_TYPES.get(type(value), "number")] += 1
        self.distinct.add(canonical.encode(value))
        if len(self.values) < MOST_VALUES:
            self.values.append(value)

    @property
    def count(self) -> int:
        return self.events.bit_count()

    @cached_property
    def type(self) -> str:
        """`number` includes integers; of other types, the most frequent."""
        if set(self._types) <= {"integer", "number"}:
            return "number" if "number" in self._types else "integer"
        return self._types.most_common(1)[0][0]

    @cached_property
    def looks_like(self) -> str | None:
        """The kind that a detector finds in most of its values."""
        tests = tests_of(self.keys)
        found = [tests[type(value)](value) for value in self.values if type(value) in tests]
        kinds = Counter(str(each.kind) for each in found if each is not None)
        return next((kind for kind, count in kinds.most_common(1) if 2 * count > len(self.values)), None)

    def texts(self, pattern: str) -> bool:
        """Whether all its values are texts of this form."""
        return all(isinstance(value, str) and re.fullmatch(pattern, value) for value in self.values)

    @cached_property
    def time(self) -> str | None:
        """`text`, `text without offset`, `milliseconds` or `seconds` if all its values are times."""
        for kind, least in (("milliseconds", 10**12), ("seconds", 10**9)):
            if all(type(value) is int and least <= value < 4 * least for value in self.values):
                return kind
        for kind, zone in (("text", ""), ("text without offset", "Z")):
            if all(type(each) is str and epoch_milliseconds(each + zone) is not None for each in self.values):
                return kind
        return None

    @cached_property
    def is_decimal_text(self) -> bool:
        """Numbers that were written as texts, each of which the number gives back: all have as many decimals, and no more
        digits than a double keeps. No ids: of those `10.10` and `10.1` are two."""
        found = [str(canonical.decode(each)) for each in self.distinct] if self.texts(_DECIMAL) else []
        decimals = {len(each.partition(".")[2]) for each in found}
        if (
            len(decimals) != 1
            or not any(decimals)
            or self.around & _NO_NUMBERS
            or self.words[-1] in NAMES["ids"]
        ):
            return False
        return all(f"{float(each):.{max(decimals)}f}" == each for each in found)


class Sample(NamedTuple):
    """The leaves of some events, in the order in which they first stand there; those that no spec should map, with the reason."""

    size: int
    leaves: list[SampleLeaf]
    left_out: dict[SampleLeaf, str]
    is_cut: bool


def read_sample(events: Sequence[dict[str, Any]]) -> Sample:
    """At most `MOST_LEAVES` leaves. Null is no value, and an array is one. Raises SpecError."""
    found: dict[tuple[str, ...], SampleLeaf] = {}
    is_cut = False
    for number, event in enumerate(events):
        check_payload(event, f"/events/{number}")
        for keys, value in _leaves(event, ()):
            if keys not in found and len(found) < MOST_LEAVES:
                found[keys] = SampleLeaf(keys)
            is_cut |= keys not in found
            if keys in found:
                found[keys].add(number, value)
    above = {keys[:length] for keys in found for length in range(1, len(keys))}
    left_out = {leaf: reason for leaf in found.values() if (reason := _unusual(leaf, above))}
    return Sample(len(events), [leaf for leaf in found.values() if leaf not in left_out], left_out, is_cut)


def _unusual(leaf: SampleLeaf, above: set[tuple[str, ...]]) -> str | None:
    if leaf.keys in above:
        return "in some events an object stands there, whose leaves are mapped"
    if len(leaf.keys) > MOST_KEYS:
        return "it stands too deep"
    if any(not words(key) or len(key) > 100 or "|" in key or shaped_key(key) for key in leaf.keys):
        return "a key of it is no name"
    return None


def _leaves(value: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, below in value.items():
        if isinstance(below, dict):
            yield from _leaves(below, (*above, key))
        elif below is not None:
            yield (*above, key), below
