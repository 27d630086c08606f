"""Mapped events to the states of their fragments: data keys fetched, values sealed, events joined.

Plaintext that policy protects does not leave this step (law 3).
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.model.errors import KeyProviderError
from idgraph.model.fragments import FragmentChange
from idgraph.model.tombstones import NO_EPOCH
from ingestion.stages.dead_letters import BatchDeadLetters
from ingestion.stages.event_states import EventStates, event_states, joined, sealed_part
from ingestion.stages.map_output import MapOutput, MappedChunk, MappedEvent
from ingestion.stages.protect import FetchedKeys, Unsealed, has_to_seal, seal_events
from merge.encoded import as_state
from merge.fragments import FragmentState
from transforms.privacy.sealing import DataKeys
from transforms.privacy.sealing_key import UnusableKey
from transforms.privacy.stored_values import RegisterSealer
from transforms.spec.snapshot import CompiledSnapshot


class Combiner:
    """Joins events of one micro-batch into outputs, under one snapshot."""

    def __init__(
        self,
        snapshot: CompiledSnapshot,
        sealer: RegisterSealer,
        data_keys: DataKeys,
        dead_letters: BatchDeadLetters,
        stops_without_keys: bool = True,
    ) -> None:
        """`stops_without_keys`: while the key service is away nothing is set aside for it."""
        self._snapshot = snapshot
        self._sealer = sealer
        self._data_keys = data_keys
        self._dead_letters = dead_letters
        self._stops_without_keys = stops_without_keys

    def combine(self, chunk: MappedChunk, output: MapOutput) -> None:
        """Join events. A fragment that one of them cannot be joined to is `broken`. Raises StoreError when the key
        store is away, and, where it is to stop then, KeyServiceError."""
        keys = self._fetch_keys(list(chunk.to_seal))
        # What was judged is a state that says so.
        excluded = chunk.others if not output.erasure_epoch else {**chunk.others, **output.erasure_epoch}
        left = chunk.plain.join_into(output.fragments, excluded)
        left += (name for name in output.erasure_epoch if name not in chunk.others)
        for name in (*left, *chunk.others):
            try:
                self._join(name, chunk.plain, chunk.others.get(name, ()), keys, output)
            except MemoryError:
                raise
            except Exception:
                # Its state is half of what it was to be.
                output.broken.add(name)

    def combine_fragment(self, events: Sequence[MappedEvent], output: MapOutput) -> None:
        """Join events of one fragment. Raises whatever it fails on."""
        fragment_id = events[0].fragment_id
        keys = self._fetch_keys([fragment_id] if has_to_seal(events) else [])
        self._join(fragment_id, event_states(), events, keys, output)

    def _fetch_keys(self, fragment_ids: list[str]) -> FetchedKeys:
        try:
            keys = self._data_keys.fetch(sorted(fragment_ids), create=True) if fragment_ids else {}
        except KeyProviderError as error:
            return error
        if self._stops_without_keys:
            for key in keys.values():
                if isinstance(key, UnusableKey) and (away := key.service_error()):
                    raise away
        return keys

    def _join(
        self,
        fragment_id: str,
        plain: EventStates,
        events: Sequence[MappedEvent],
        keys: FetchedKeys,
        output: MapOutput,
    ) -> None:
        """Join events of one fragment, and those that it has among the plain ones, into the output's state of it."""
        parts: list[bytes] = []
        present = output.fragments.get(fragment_id)
        if events:
            present = self._take(fragment_id, events, keys, present, parts, output)
        if not isinstance(present, FragmentState) and fragment_id not in output.erasure_epoch:
            whole = plain.join_with(fragment_id, parts, present)
            if whole is not None:
                output.fragments[fragment_id] = whole
                return
        parts += (state for _, state in plain.take(fragment_id))
        if not parts:
            return
        if isinstance(present, FragmentState):
            present.join(joined(parts))
            return
        state = joined(parts)
        if present is not None:
            state.join(as_state(present))
        _begin(fragment_id, state, output)

    def _take(
        self,
        fragment_id: str,
        events: Sequence[MappedEvent],
        keys: FetchedKeys,
        present: FragmentState | bytes | None,
        parts: list[bytes],
        output: MapOutput,
    ) -> FragmentState | bytes | None:
        """Seal events; each then stands in `parts`, or in the state that this gives."""
        policies = self._snapshot.attributes.policies
        # A state that stands as bytes is decoded only for what may be sealed.
        before = as_state(present).registers if present is not None and has_to_seal(events) else {}
        for event, sealed in zip(
            events, seal_events(self._sealer, keys, events, before, policies), strict=True
        ):
            if isinstance(sealed, Unsealed):
                spec = event.origin.spec
                self._dead_letters.add(output, event.record, "encrypt", sealed.reason, sealed.detail, spec)
                continue
            output.protected += len(event.leaves.to_seal)
            if event.state is not None:
                parts.append(event.state)
                if sealed.registers:
                    parts.append(sealed_part(sealed.registers))
                continue
            if not isinstance(present, FragmentState):
                state = FragmentState() if present is None else as_state(present)
                present = _begin(fragment_id, state, output)
            mutations = event.leaves.plain
            mutations |= sealed.registers
            origin, identifiers, scope = event.origin, event.identifiers, event.scope
            present.apply(
                FragmentChange(fragment_id, origin, mutations, identifiers, scope, policies, sealed.entries)
            )
        return present


def _begin(fragment_id: str, state: FragmentState, output: MapOutput) -> FragmentState:
    output.fragments[fragment_id] = state
    state.erasure_epoch = output.erasure_epoch.get(fragment_id, NO_EPOCH)
    return state
