"""Activities of a snapshot: which entries a mapped event leaves in timelines.

Values that policy protects do not exist here (law 3): no condition reads one, and no entry has one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from idgraph.model import canonical, paths
from idgraph.model.behaviour import ActivityDefinition, ActivityDocument
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.durations import milliseconds
from idgraph.model.errors import EventError, SpecError
from idgraph.model.snapshots import pattern_matches
from idgraph.model.specs import RESERVED_KEY
from idgraph.model.stamps import SpecRef, Stamp, read_ordinal
from idgraph.model.timelines import DAY_MS, LARGEST_ENTRY, ActivityEntries, Entry, made_by_version
from transforms.spec.compiler import compile_spec
from transforms.spec.jmespath.evaluators import is_false

log = logging.getLogger(__name__)

_RESULT = "entry"


class Activity:
    """One version of an activity, compiled. Immutable."""

    def __init__(self, definition: ActivityDefinition, version: int = 1) -> None:
        """Raises SpecError with a JSON pointer."""
        self.definition = definition
        self.keep_days = -(-milliseconds(definition.keep) // DAY_MS)
        self._version = made_by_version(definition.generation, version)
        self._time = paths.split(definition.time) if definition.time else None
        self._fields = [(name, _keys(name, path)) for name, path in sorted(definition.fields.items())]
        self._condition = None
        if definition.condition is not None:
            try:
                operation = {"operation": "jmespath", "spec": {_RESULT: definition.condition}}
                self._condition = compile_spec(operation)
            except SpecError as error:
                raise SpecError(error.message, "/condition", error.hint, error.offset) from None

    def names(self, source: str, event_type: str) -> bool:
        """Whether it names events of this source and type."""
        asked = self.definition
        return pattern_matches(asked.source, source) and pattern_matches(asked.event_type, event_type)

    def entry(
        self,
        output: dict[str, Any],
        open_output: dict[str, Any],
        stamp: Stamp,
        spec: SpecRef,
        is_timed: bool,
        latest: int,
    ) -> Entry | None:
        """The entry of an event; None for one that the condition excludes, or that has no time that policy does not protect.
        `open_output` has only what policy does not protect. A time that `time` names must not be beyond `latest` (epoch milliseconds): `keep` would drop
        all others. Raises EventError, TransformError."""
        if self._condition is not None:
            result = self._condition(open_output)
            if result is None or is_false(result.get(_RESULT)):
                return None
        time = self._read_time(output, open_output, stamp, is_timed, latest)
        if time is None:
            return None
        fields = {
            name: value
            for name, keys in self._fields
            if (value := paths.value_at(open_output, keys)) is not None
        }
        while len(canonical.encode(fields)) > LARGEST_ENTRY:
            largest = max(fields, key=lambda name: (len(canonical.encode(fields[name])), name))
            del fields[largest]
            _warn_once(self.definition.name, self._version, f"entries have no {largest} that is too large")
        return Entry(time, stamp.source, stamp.event_id, (self._version, *spec), fields)

    def entries(self, entries: Iterable[Entry]) -> ActivityEntries:
        """Entries with the activity's bounds."""
        return ActivityEntries(self.keep_days, self.definition.most, tuple(entries))

    def _read_time(
        self, output: dict[str, Any], open_output: dict[str, Any], stamp: Stamp, is_timed: bool, latest: int
    ) -> int | None:
        name = self.definition.name
        if self._time is None:
            if is_timed:
                return stamp.ordinal
            _warn_once(
                name, self._version, "it names no `time`, and some events have ordinals that are no times"
            )
            return None
        value = paths.value_at(output if self._time[0] == RESERVED_KEY else open_output, self._time)
        if value is None:
            _warn_once(
                name, self._version, "some events have no value at its `time`, or one that policy protects"
            )
            return None
        try:
            time = read_ordinal(value)
        except EventError as error:
            message = error.message.replace("the ordinal", f"the time for the activity {name}")
            raise EventError(DeadLetterReason.BAD_ORDINAL, message) from None
        if time < 0:
            raise EventError(
                DeadLetterReason.BAD_ORDINAL, f"the time for the activity {name} lies before 1970"
            )
        if time > latest:
            message = f"the time for the activity {name} lies further in the future than the allowed skew"
            raise EventError(DeadLetterReason.FUTURE_ORDINAL, message)
        return time


class Activities:
    """The activities in force."""

    def __init__(self, documents: Sequence[ActivityDocument]) -> None:
        self.all: list[Activity] = []
        for each in documents:
            try:
                self.all.append(Activity(each, each.version))
            except SpecError as error:
                # The metadata service refuses it; one of an older idgraph hurts only itself.
                _warn_once(each.name, each.version, error.message)
        self._routes: dict[tuple[str, str], tuple[Activity, ...]] = {}

    def of(self, source: str, event_type: str) -> tuple[Activity, ...]:
        """Those that name events of a source and type."""
        route = source, event_type
        found = self._routes.get(route)
        if found is None:
            found = tuple(each for each in self.all if each.names(source, event_type))
            if len(self._routes) < _MOST_ROUTES:
                self._routes[route] = found
        return found


_MOST_ROUTES = 10_000


@lru_cache(maxsize=1000)
def _warn_once(activity: str, _version: int, problem: str) -> None:
    log.warning("the activity %s leaves less than it names: %s", activity, problem)


def open_values(output: dict[str, Any], protected: Iterable[str]) -> dict[str, Any]:
    """A mapped output without the values at protected paths, and without `_event`, which is not stored."""
    found = {key: value for key, value in output.items() if key != RESERVED_KEY}
    for path in protected:
        *above, last = paths.split(path)
        node: dict[str, Any] | None = found
        for key in above:
            below = node.get(key) if node is not None else None
            if type(below) is dict and node is not None:
                node[key] = below = dict(below)
                node = below
            else:
                node = None
        if node is not None:
            node.pop(last, None)
    return found


def _keys(name: str, path: str) -> tuple[str, ...]:
    keys = paths.split(path)
    if not path or keys[0] == RESERVED_KEY:
        raise SpecError(
            "a field is a path of the mapped output that is stored", paths.pointer("fields", name)
        )
    return keys
