"""The effect of each operation of a spec on a payload, for people and for scripts, with sensitive keys masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from idgraph.model import canonical, paths
from idgraph.model.errors import TransformError
from transforms.schema.detection import shaped_key
from transforms.schema.value_keys import ValueKeys
from transforms.spec.compiler import Trace, TracedStep


class KeyMasks:
    """Replaces keys in which a detector finds an address or a number of somebody by `<email 1>` and the like.
    Keys that an operation made out of a value become `<value 1>`. The same key is always replaced by the
    same, so that steps of one trace can be compared."""

    def __init__(self, spec: Any = None) -> None:
        self._names: dict[str, str] = {}
        self._value_keys = ValueKeys(spec)
        self._is_value = self._value_keys.made_of()

    def begin(self, payload: Any) -> None:
        """Note the keys of this payload; from now on its values are looked for in other keys."""
        self._is_value = self._value_keys.made_of(payload)

    def masked(self, value: Any) -> Any:
        """The output of an operation with such keys replaced; its values count from then on. Raises TransformError for
        one that is nested too deeply."""
        try:
            shown = self._masked(value)
            self._is_value.add_values(value)
        except RecursionError:
            raise TransformError("the payload is nested too deeply to be shown") from None
        return shown

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._name(key): self._masked(below) for key, below in value.items()}
        if isinstance(value, list):
            return [self._masked(below) for below in value]
        return value

    def _name(self, key: str) -> str:
        detection = shaped_key(key)
        if detection is not None:
            return self._mask(key, detection.kind)
        return self._mask(key, "value") if self._is_value(key) else key

    def _mask(self, key: str, kind: str) -> str:
        return self._names.setdefault(key, f"<{kind} {len(self._names) + 1}>")


ABSENT = object()
"""Nothing there, as opposed to null."""


class Change(NamedTuple):
    """One leaf that differs. `path` is dotted, array elements are `[0]`; the root's path is empty."""

    kind: Literal["added", "removed", "changed"]
    path: str
    before: Any
    after: Any


def changes(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """The leaves in which two values differ, in the order of the second. Empty objects and arrays count as
    leaves, and 1, 1.0 and true are three values."""
    if type(before) is type(after) and isinstance(before, dict | list) and (before and after):
        old, new = _parts(before), _parts(after)
        for key in [*new, *(key for key in old if key not in new)]:
            yield from changes(old.get(key, ABSENT), new.get(key, ABSENT), _joined(path, key))
    elif before is ABSENT:
        yield from (Change("added", below, None, leaf) for below, leaf in leaves(after, path))
    elif after is ABSENT:
        yield from (Change("removed", below, leaf, None) for below, leaf in leaves(before, path))
    elif isinstance(before, dict | list) or isinstance(after, dict | list):
        if before != after or type(before) is not type(after):
            yield from changes(before, ABSENT, path)
            yield from changes(ABSENT, after, path)
    elif type(before) is not type(after) or before != after:
        yield Change("changed", path, before, after)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All leaves of a value with their paths."""
    if isinstance(value, dict | list) and value:
        for key, below in _parts(value).items():
            yield from leaves(below, _joined(path, key))
    else:
        yield path, value


def masked(value: Any) -> Any:
    """A value of the same shape in which each leaf says only its kind; null stays."""
    match value:
        case dict():
            return {key: masked(below) for key, below in value.items()}
        case list():
            return [masked(below) for below in value]
        case str():
            return f"<text of {len(value)}>"
        case bool():
            return "<boolean>"
        case int():
            return "<integer>"
        case float() | Decimal():
            return "<decimal>"
    return value


def _parts(value: dict[str, Any] | list[Any]) -> dict[str | int, Any]:
    return dict(value.items() if isinstance(value, dict) else enumerate(value))


def _joined(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{paths.escape(key)}" if path else paths.escape(key)


_BUILDING = frozenset({"shift", "jmespath"})
"""Operations whose output is a new value: it is shown whole."""

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


class TraceView:
    """Shows the effect of a spec on payloads, each step against the output of the step before."""

    def __init__(self, trace: Trace, spec: Any, place: str, reveal: bool) -> None:
        """`place` is the pointer of `spec`'s operations in their file. Unless `reveal`, values are hidden,
        and keys that are personal data or were made of values."""
        self._trace = trace
        self._place = place
        self._show = (lambda value: value) if reveal else masked
        self._masks = None if reveal else KeyMasks(spec)

    def steps(self, payload: Any) -> Iterator[StepView]:
        """Raises TransformError at the operation that fails."""
        if self._masks:
            self._masks.begin(payload)
        before = self._shown(payload)
        for step in self._trace(payload, None):
            shown = step._replace(value=self._shown(step.value))
            yield StepView(before, shown, self._place, self._show)
            before = shown.value

    def _shown(self, value: Any) -> Any:
        return self._masks.masked(value) if self._masks else value


class StepView:
    """The effect of one operation."""

    def __init__(self, before: Any, step: TracedStep, place: str, show: Callable[[Any], Any]) -> None:
        self._before = before
        self._step = step
        self._pointer = place + step.pointer
        self._show = show
        self._builds = step.operation in _BUILDING

    def lines(self) -> Iterator[str]:
        """For people: the operation, then a line for each leaf that it made or changed."""
        yield f"  {self._pointer} {self._step.operation}" if self._pointer else f"  {self._step.operation}"
        if self._builds:
            for path, leaf in leaves(self._step.value):
                yield f"    = {path or '(all)'}: {self._text(leaf)}"
            return
        found = list(changes(self._before, self._step.value))
        for change in found:
            yield f"    {_SIGNS[change.kind]} {change.path or '(all)'}: {self._described(change)}"
        if not found:
            same = canonical.encode_ordered(self._before) == canonical.encode_ordered(self._step.value)
            yield "    nothing changed" if same else "    only the order of keys changed"

    def record(self) -> dict[str, Any]:
        """For scripts: the whole value; for operations that change their input, also leaves by path."""
        show = self._show
        record = {
            "pointer": self._pointer,
            "operation": self._step.operation,
            "value": show(self._step.value),
        }
        if not self._builds:
            found = list(changes(self._before, self._step.value))
            record["added"] = {each.path: show(each.after) for each in found if each.kind == "added"}
            record["removed"] = {each.path: show(each.before) for each in found if each.kind == "removed"}
            record["changed"] = {
                each.path: [show(each.before), show(each.after)] for each in found if each.kind == "changed"
            }
        return record

    def _described(self, change: Change) -> str:
        if change.kind == "changed":
            return f"{self._text(change.before)} -> {self._text(change.after)}"
        return self._text(change.after if change.kind == "added" else change.before)

    def _text(self, value: Any) -> str:
        shown = self._show(value)
        return canonical.encode_ordered(value).decode() if shown is value else str(shown)
