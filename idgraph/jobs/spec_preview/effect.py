"""The differences between the events of a sample as they are mapped now and as a new version of the spec maps
them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from idgraph.jobs.spec_preview.protected import ProtectedValues
from idgraph.jobs.spec_preview.tried import Leaf, SpecProblem, TriedEvent
from idgraph.model.events import RawRecord
from idgraph.model.jobs import SHOWN

NORMAL_95 = 1.96
RULE_OF_THREE = 3.0
"""An event that did not occur in n draws has, with 95 % confidence, at most a share of 3 / n."""
MOST_PATHS = 500
"""Attributes that are told apart; a spec that makes more is counted on, but its further paths are not named."""
MOST_EXAMPLES = 10
MOST_VALUE = 200
"""Characters of an example's value."""


def share_error(number: int, drawn: int, whole: int | None) -> float:
    """The error of the share `number` / `drawn` against that of all, with 95 % confidence; 0 where `drawn`
    are all. `whole` is their number, None where nobody counted."""
    if drawn in (0, whole):
        return 0.0
    share = min(1.0, number / drawn)
    left = 1.0 if whole is None else max(0.0, 1 - drawn / whole)
    spread = NORMAL_95 * math.sqrt(share * (1 - share) / drawn * left)
    return max(spread, RULE_OF_THREE / drawn if share in (0.0, 1.0) else 0.0)


class PathEffect:
    """The effect on one attribute: the numbers of events that gain it, lose it, or have another type or value
    of it. `exposes` counts protected values that are written here in plain text, `sensitive` values that look
    sensitive."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.before: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        """Events by type of value."""
        self.is_protected = False
        self.looks_like: str | None = None
        self.exposed_paths: set[str] = set()

    @property
    def change(self) -> str:
        """The one word for all of it."""
        for each in ("exposes", "sensitive"):
            if self.counts[each]:
                return each
        if not self.before or not self.after:
            return "added" if self.after else "removed"
        return "retyped" if self.counts["retyped"] else "changed"

    def document(self, path: str) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "path": path,
            "change": self.change,
            "events": max(self.counts.values()),
            "counts": dict(self.counts),
            "types_before": sorted(self.before),
            "types_after": sorted(self.after),
            "is_protected": self.is_protected,
            "looks_like": self.looks_like,
            "exposes": sorted(self.exposed_paths),
        }


class Effect:
    """Counts the differences, event by event. Keeps no value but those of a few examples, of which none is
    protected."""

    def __init__(self, withholds: bool) -> None:
        """`withholds`: whether its reader may not reveal, so that no number may say anything of a protected value."""
        self.withholds = withholds
        self.computed: set[str] = set()
        """Places of the new version that compute with protected values; their events are counted as `withheld`, and no more."""
        self.counts: Counter[str] = Counter()
        """`events`, `changed`, `errors_before`, `errors_after`, `errors_new`, `errors_gone`, `exposed`, `nothing_before`,
        `nothing_after`, and `erased` for events of persons who were erased, which are left out."""
        self.attributes: dict[str, PathEffect] = {}
        self.errors: Counter[SpecProblem] = Counter()
        """New ones."""
        self.error_positions: dict[SpecProblem, list[str]] = defaultdict(list)
        self.opened_types: Counter[str] = Counter()
        """Types of identifiers that were hashed, and would be stored readable."""
        self.examples: list[dict[str, Any]] = []
        self._exampled: set[tuple[str, str]] = set()

    def add(self, record: RawRecord, before: TriedEvent, after: TriedEvent, values: ProtectedValues) -> bool:
        """One event; whether it may be counted on."""
        counts = self.counts
        counts["events"] += 1
        if values.computed and self.withholds:
            counts["withheld"] += 1
            counts["exposed"] += any(values.stated.values())
            self.computed |= values.computed
            for path, sources in values.stated.items():
                if sources and (known := self._see(path, None, None)) is not None:
                    known.counts["exposes"] += 1
                    known.exposed_paths |= sources
            return False
        for side, outcome in (("before", before), ("after", after)):
            counts[f"errors_{side}"] += outcome.problem is not None
            counts[f"nothing_{side}"] += outcome.problem is None and outcome.event is None
        found = list(self._differences(before, after, values))
        if not found and before.about() == after.about():
            return True
        counts["changed"] += 1
        if after.problem is not None and before.problem is None:
            counts["errors_new"] += 1
            self.errors[after.problem] += 1
            if len(self.error_positions[after.problem]) < SHOWN:
                self.error_positions[after.problem].append(record.position)
        counts["errors_gone"] += before.problem is not None and after.problem is None
        if opened := after.open_types() - before.open_types() if before.event is not None else set():
            hashed = set() if before.event is None else {each.type for each in before.event.identifiers}
            self.opened_types.update(opened & hashed)
        counts["exposed"] += any(kind in ("exposes", "sensitive") for kind, _ in found)
        self._exemplify(record, before, after, values, found)
        return True

    def _differences(
        self, before: TriedEvent, after: TriedEvent, values: ProtectedValues
    ) -> Iterator[tuple[str, str]]:
        for path in sorted(before.leaves.keys() | after.leaves.keys()):
            old, new = before.leaves.get(path), after.leaves.get(path)
            known = self._see(path, old, new)
            kinds = list(_kinds(old, new, path, values))
            if new is not None and not new.is_sealed and kinds:
                if sources := values.exposes.get(path) or values.in_value(new.value) - {path}:
                    kinds.append("exposes")
                    if known is not None:
                        known.exposed_paths |= sources
                elif old is not None and old.is_sealed:
                    kinds.append("exposes")
                elif new.looks_like is not None:
                    kinds.append("sensitive")
            for kind in kinds:
                if known is not None:
                    known.counts[kind] += 1
                yield kind, path

    def _see(self, path: str, old: Leaf | None, new: Leaf | None) -> PathEffect | None:
        known = self.attributes.get(path)
        if known is None:
            if len(self.attributes) >= MOST_PATHS:
                self.counts["unnamed_paths"] += 1
                return None
            known = self.attributes[path] = PathEffect()
        if old is not None:
            known.before[old.data_type] += 1
        if new is not None:
            known.after[new.data_type] += 1
            known.looks_like = known.looks_like or new.looks_like
        known.is_protected |= any(each is not None and each.is_sealed for each in (old, new))
        return known

    def _exemplify(
        self,
        record: RawRecord,
        before: TriedEvent,
        after: TriedEvent,
        values: ProtectedValues,
        found: list[tuple[str, str]],
    ) -> None:
        """Keep an event that shows a kind of change at a path that no example shows."""
        news = {each for each in found if each not in self._exampled}
        if after.problem is not None and before.problem is None:
            news.add(("error", str(after.problem)))
        if not news - self._exampled or len(self.examples) >= MOST_EXAMPLES:
            return
        self._exampled |= news
        differing = sorted({path for _, path in found})
        event = after.event or before.event
        self.examples.append(
            {
                "position": record.position,
                "source": record.source,
                "profile": None if event is None else event.fragment_id,
                "problem_before": before.problem and before.problem._asdict(),
                "problem": after.problem and after.problem._asdict(),
                "values": [
                    {
                        "path": path,
                        "kinds": [kind for kind, where in found if where == path],
                        "before": _shown(before.leaves.get(path), path, values),
                        "after": _shown(after.leaves.get(path), path, values),
                    }
                    for path in differing
                ],
            }
        )

    @property
    def is_harmful(self) -> bool:
        """Whether it exposes something, or makes new errors."""
        return bool(self.counts["exposed"] or self.opened_types or self.errors)

    def paths(self) -> dict[str, int]:
        """The numbers of attributes that are added, removed, retyped in some events, or exposed."""
        found = [each for each in self.attributes.values() if each.counts]
        return {
            "added": sum(not each.before for each in found),
            "removed": sum(not each.after for each in found),
            "retyped": sum(bool(each.counts["retyped"]) for each in found),
            "exposed": sum(bool(each.counts["exposes"] or each.counts["sensitive"]) for each in found),
        }


def _kinds(old: Leaf | None, new: Leaf | None, path: str, values: ProtectedValues) -> Iterator[str]:
    if old is None or new is None:
        yield "added" if old is None else "removed"
    elif old.data_type != new.data_type:
        yield "retyped"
    elif old.is_sealed != new.is_sealed:
        yield "changed"
    elif not values.come_alike(path) if values.follow(path) else old.value != new.value:
        # To compare a protected value with the draft's would answer a guess.
        yield "changed"


def _shown(leaf: Leaf | None, path: str, values: ProtectedValues) -> dict[str, Any] | None:
    """A value as an example may have it: only the type of one that is protected, may have a protected one, or
    looks sensitive."""
    if leaf is None:
        return None
    hides = leaf.is_sealed or leaf.looks_like is not None or values.hide(path, leaf.value)
    value = leaf.value
    if isinstance(value, str | list) and len(str(value)) > MOST_VALUE:
        value = f"{str(value)[:MOST_VALUE]}…"
    return {"type": leaf.data_type, "is_protected": hides} | ({} if hides else {"value": value})
