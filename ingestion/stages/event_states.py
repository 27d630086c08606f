"""What events make of a fragment, as the bytes of a state: no object for each of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from zlib import crc32

from idgraph import native
from merge import codec

_BEGUN = crc32(codec.FORMAT)


class EventStates(Protocol):
    """The states of events by fragment, each as the JSON in what `merge.codec` writes.

    With each stands when it was: its ordinal, if that is a time.
    """

    def add(self, fragment_id: str, time: int | None, state: bytes, /) -> None:
        """Keep one more."""
        ...

    def fragment_ids(self) -> list[str]:
        """Of all events, each once."""
        ...

    def take(self, fragment_id: str, /) -> list[tuple[int | None, bytes]]:
        """Take out the events of a fragment."""
        ...

    def join_into(self, fragments: dict[str, bytes], excluded: Mapping[str, object], /) -> list[str]:
        """Join the events of each fragment that is not `excluded` with the bytes that it has in `fragments`, and put the
        bytes of that there: but not for those that are not of the common form, whose ids this gives."""
        ...

    def join_with(self, fragment_id: str, parts: list[bytes], present: bytes | None, /) -> bytes | None:
        """The bytes of the join of a fragment's events, of `parts`, given as their JSON, and of the bytes that are
        `present` of it. None for what is not of the common form, and where there is nothing to join."""
        ...


class ListedStates:
    """`EventStates` in lists: leaves all joining to who asks."""

    # Reference of `EventStates` in native/states.c.
    def __init__(self) -> None:
        self._events: dict[str, list[tuple[int | None, bytes]]] = {}

    def add(self, fragment_id: str, time: int | None, state: bytes, /) -> None:
        self._events.setdefault(fragment_id, []).append((time, state))

    def fragment_ids(self) -> list[str]:
        return list(self._events)

    def take(self, fragment_id: str, /) -> list[tuple[int | None, bytes]]:
        return self._events.pop(fragment_id, [])

    def join_into(
        self,
        fragments: dict[str, bytes],  # noqa: ARG002
        excluded: Mapping[str, object],
        /,
    ) -> list[str]:
        return [name for name in self._events if name not in excluded]

    def join_with(self, fragment_id: str, parts: list[bytes], present: bytes | None, /) -> bytes | None:  # noqa: ARG002
        return None


def event_states() -> EventStates:
    """Without any events yet."""
    return ListedStates() if native.states is None else native.states.EventStates(crc32, _BEGUN)
