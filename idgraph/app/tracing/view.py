"""What each operation of a spec did to a payload, for people and for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from idgraph.app.tracing.changes import Change, changes, leaves, masked
from idgraph.app.tracing.key_masks import KeyMasks
from idgraph.model import canonical
from transforms.spec.tracing import Trace, TracedStep

_BUILDING = frozenset({"shift", "jmespath"})
"""Operations whose output is a new value: it is shown whole."""

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


class TraceView:
    """Shows what a spec does to payloads, each step against what the step before gave."""

    def __init__(self, trace: Trace, spec: Any, place: str, reveal: bool) -> None:
        """`place` is where the operations of `spec` stand in their file; values are hidden unless `reveal`, and keys
        that are personal data or were made of values."""
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
    """What one operation did."""

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
            yield f"    {_SIGNS[change.kind]} {change.path or '(all)'}: {self._reported(change)}"
        if not found:
            same = canonical.encode_ordered(self._before) == canonical.encode_ordered(self._step.value)
            yield "    nothing changed" if same else "    only the order of keys changed"

    def record(self) -> dict[str, Any]:
        """For scripts: the whole value; for operations that change what they get, also leaves by path."""
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

    def _reported(self, change: Change) -> str:
        if change.kind == "changed":
            return f"{self._text(change.before)} -> {self._text(change.after)}"
        return self._text(change.after if change.kind == "added" else change.before)

    def _text(self, value: Any) -> str:
        shown = self._show(value)
        return canonical.encode_ordered(value).decode() if shown is value else str(shown)
