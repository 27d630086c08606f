"""The parts of a sweep: what is done with some fragments, by whom, and its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import dropwhile, islice
from typing import Protocol


@dataclass(slots=True)
class Projected:
    """`projected` fragments are in the index as they are stored, or gone from both; of the latter the index
    had `erased` documents. `refused` has by id the reason why the index has not taken the others, without any
    value, `versions` which version it has not taken; `postponed` are those that it refused before, or that wait for a process that has newer identity
    rules. `has_split` says whether other fragments got entries in the outbox. `is_whole` says whether the time
    was enough for all."""

    projected: int = 0
    erased: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    postponed: int = 0
    has_split: bool = False
    is_whole: bool = True

    def left(self) -> int:
        """The number of fragments that the index has not taken."""
        return len(self.refused) + self.postponed

    def add(self, other: Projected) -> None:
        """Add the result for other fragments."""
        self.projected += other.projected
        self.erased += other.erased
        self.postponed += other.postponed
        self.has_split |= other.has_split
        self.refused |= other.refused
        self.versions |= other.versions


class Work(StrEnum):
    """What is done for all fragments, some at a time."""

    FOLLOW_RULES = "follow rules"
    """Put those into the outbox that new identity rules give to another profile."""
    FOLLOW_BEHAVIOUR = "follow behaviour"
    """Put them into the outbox: definitions of derived attributes have changed."""
    FOLLOW_SEGMENTS = "follow segments"
    """Append to the feed which segments their profiles are in."""


class Tasks(Protocol):
    """Runs a sweep as tasks of an engine, several at once, each by a projection of its own. A task may run twice, and tasks in
    any order. Under a snapshot that is not older than the sweep's. Raises as `Projection.project` does, and FlowStoppedError
    for what the engine says: safe to repeat."""

    def sweep(self, waiting: Mapping[str, int]) -> Projected:
        """The sum of `Projection.share` over shares of the outbox, for some seconds."""
        ...

    @property
    def at_once(self) -> int:
        """Fragments per call of `follow`: they occupy the engine for some seconds."""
        ...

    def follow(self, work: Work, ids: Sequence[str]) -> Projected:
        """The sum of `Projection.follow` over parts of these."""
        ...


class Pass:
    """A look through all fragments of a store, some at a time. After an error it goes on where it stopped."""

    def __init__(
        self,
        ids: Callable[[], Iterator[str]],
        run: Callable[[Sequence[str]], object],
        at_once: Callable[[], int],
    ) -> None:
        """`ids` returns those of all fragments, sorted."""
        self._ids = ids
        self._run = run
        self._at_once = at_once
        self._remaining: Iterator[str] | None = None
        self._place = ""

    def has_ended(self, ends: float) -> bool:
        """Go on until `ends` (`time.monotonic`), at least one step. Returns whether that was enough for all."""
        remaining, self._remaining = self._remaining, None
        if remaining is None:
            remaining = dropwhile(lambda each: each <= self._place, self._ids())
        while page := list(islice(remaining, self._at_once())):
            self._run(page)
            self._place = page[-1]
            if time.monotonic() >= ends:
                self._remaining = remaining
                return False
        return True
