"""Isolation of bad changes: a change that cannot be read, joined or indexed fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import DamagedStateError, IdgraphError
from idgraph.model.index import IndexDocument
from merge.fragments import FragmentState, join_all


class CommitFailure(NamedTuple):
    """What some events together ask of a fragment, and why it cannot be done. `detail` holds no value; values that
    policy protects are sealed in `change`."""

    fragment_id: str
    reason: DeadLetterReason
    detail: str
    change: FragmentState


class Verdict(StrEnum):
    """What is to become of a failure."""

    SET_ASIDE = "set_aside"
    """It becomes a dead letter, from which it can be replayed."""
    STOP = "stop"
    """The flow stops; its micro-batch is not marked done and is retried."""
    TAKEN = "taken"
    """The handler has put the changes where they are safe, whatever crashes."""


FailureHandler = Callable[[CommitFailure], Verdict]
"""Runs in a worker process. It may be asked of the same failure again, when a micro-batch is retried. What it
raises stops the flow."""


def set_aside(_: CommitFailure) -> Verdict:
    """Every failure becomes a dead letter."""
    return Verdict.SET_ASIDE


def stop(_: CommitFailure) -> Verdict:
    """Any failure stops the flow."""
    return Verdict.STOP


def read(parts: Sequence[tuple[bytes, int]]) -> tuple[list[FragmentState], list[CommitFailure]]:
    """The changes of a fragment, given as the bytes of their states with their erasure epochs, and a failure for each
    that cannot be read. A failure has the bytes; its fragment is not named yet."""
    states: list[FragmentState] = []
    unread: list[CommitFailure] = []
    for data, erasure_epoch in parts:
        try:
            state = FragmentState.checked(data)
        except MemoryError:
            raise
        except Exception as error:
            detail = f"the changes cannot be read: {type(error).__name__}"
            unread.append(CommitFailure("", DeadLetterReason.MERGE_FAILED, detail, FragmentState(data)))
            continue
        state.erasure_epoch = erasure_epoch
        states.append(state)
    return states, unread


def joined(parts: Sequence[FragmentState]) -> list[FragmentState]:
    """One state of all parts; where they cannot be joined, the parts."""
    try:
        whole = join_all(parts)
        whole.encode()
    except MemoryError:
        raise
    except Exception:
        return list(parts)
    # An erasure that forbids one part forbids the whole: it is later than all events of the whole.
    whole.erasure_epoch = min(part.erasure_epoch for part in parts)
    return [whole]


class DocumentTaker(Protocol):
    """What documents are put into: an index, or a version of one that is being made."""

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]: ...


def put(index: DocumentTaker, documents: Sequence[IndexDocument]) -> dict[str, str]:
    """`ProfileIndex.put`, past documents that it fails on: those are refused with the type of the error."""
    try:
        return index.put(documents)
    except Exception as error:
        # A state that is damaged shows when the document made of it is read.
        if isinstance(error, IdgraphError | MemoryError) and not isinstance(error, DamagedStateError):
            raise
        if len(documents) == 1:
            return {documents[0].id: type(error).__name__}
    half = len(documents) // 2
    return put(index, documents[:half]) | put(index, documents[half:])
