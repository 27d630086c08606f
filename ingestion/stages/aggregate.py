"""Aggregate: the protected events of an output are joined, one state for each fragment.

Common events are bytes and are joined as bytes (`EventStates`). A fragment with another event is joined as an object
until its output is finished.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph import native
from idgraph.model.attributes import Reconciliation
from idgraph.model.fragments import FragmentChange, Register
from ingestion.stages.map_output import EventStates, Fault, MapOutput, MappedEvent
from ingestion.stages.protect import ProtectedChunk, Sealed
from merge import codec
from merge.fragments import FragmentState, join_all
from merge.identity.evidence import evidence_of


class Aggregator:
    """Joins the events of one output after the other."""

    def __init__(self, policies: dict[str, Reconciliation]) -> None:
        """`policies` of the attributes whose policy is not `latest`, by path."""
        self._policies = policies
        self._states: dict[str, FragmentState] = {}

    def add(self, chunk: ProtectedChunk, output: MapOutput) -> None:
        """Join the events of a chunk into the output's fragments. A fragment that fails is one of its `faults`."""
        left = chunk.plain.join_into(output.fragments, {**chunk.others, **self._states})
        begun = [name for name in self._states if name not in chunk.others]
        for name in (*left, *begun, *chunk.others):
            events = chunk.others.get(name, ())
            try:
                self._join(name, chunk.plain, events, output)
            except MemoryError:
                raise
            except Exception as error:
                spec = events[0][0].origin.spec if events else None
                output.faults[name] = Fault(type(error).__name__, spec)

    def finish(self, output: MapOutput) -> None:
        """Encode all fragments: whatever becomes of one later, its changes can be a dead letter."""
        states, self._states = self._states, {}
        for name, state in states.items():
            try:
                state.normalise()
                output.fragments[name] = state.encode()
            except MemoryError:
                raise
            except Exception as error:
                origin = next(state.origins(), None)
                output.faults[name] = Fault(type(error).__name__, origin and origin.spec)
        for name in output.faults:
            output.fragments.pop(name, None)

    def _join(
        self,
        name: str,
        plain: EventStates,
        events: Sequence[tuple[MappedEvent, Sealed]],
        output: MapOutput,
    ) -> None:
        parts: list[bytes] = []
        for event, sealed in events:
            if event.timeline:
                output.timelines.setdefault(name, []).append(event.timeline)
            if event.state is not None:
                parts.append(event.state)
                if sealed.registers:
                    parts.append(codec.body_of(sealed.registers))
                continue
            registers = event.leaves.plain
            registers |= sealed.registers
            if self._is_joined_as_bytes(event, registers):
                shown = evidence_of(event.origin, event.identifiers, event.evidence, event.retracts)
                parts.append(codec.body_of(registers, *shown))
                continue
            change = FragmentChange(
                name,
                event.origin,
                registers,
                event.identifiers,
                event.scope,
                self._policies,
                sealed.entries,
                event.evidence,
                event.retracts,
            )
            self._state(name, output).apply(change)
        if name not in self._states:
            whole = plain.join_with(name, parts, output.fragments.get(name))
            if whole is not None:
                output.fragments[name] = whole
                return
        parts += (state for _, state in plain.take(name))
        if parts:
            made = join_all([FragmentState(codec.framed(part)) for part in parts])
            self._state(name, output).join(made)

    def _is_joined_as_bytes(self, event: MappedEvent, registers: dict[str, Register]) -> bool:
        if native.states is None or event.scope is not None:
            return False
        return not self._policies or self._policies.keys().isdisjoint(registers)

    def _state(self, name: str, output: MapOutput) -> FragmentState:
        """The state of a fragment as an object from now on."""
        if name not in self._states:
            present = output.fragments.setdefault(name, b"")
            self._states[name] = FragmentState(present or None)
        return self._states[name]
