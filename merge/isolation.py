"""What cannot be joined, written as bytes or indexed is found one by one, so that it fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from idgraph import native
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import DamagedStateError, IdgraphError
from idgraph.model.index import IndexDocument
from merge import codec
from merge.encoded import EncodedState, state_of
from merge.fragments import FragmentState


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


def validate(state: FragmentState) -> None:
    """Normalise a state and have it keep its bytes: whatever becomes of it later, it can be set aside. What this
    raises is the state's own fault."""
    state.normalise()
    state.encoded = codec.encode(state)


def with_part(whole: FragmentState | None, part: FragmentState) -> FragmentState:
    """Both joined; `whole` stays as it is. Where an erasure came in between, only `part`: what it forbids would take
    with it what it lets pass."""
    validate(part)
    if whole is None or whole.erasure_epoch < part.erasure_epoch:
        return part
    # Of its bytes: a join that fails leaves half of it done.
    made = codec.decode(codec.encode(whole))
    made.erasure_epoch = min(whole.erasure_epoch, part.erasure_epoch)
    made.join(part)
    validate(made)
    return made


def read(parts: Sequence[FragmentState | bytes]) -> tuple[list[FragmentState], list[CommitFailure]]:
    """The parts of a fragment's changes, and a failure for each that cannot be read, with the bytes that it has.
    Its fragment is not named yet."""
    try:
        return [state_of(part) if isinstance(part, bytes) else part for part in parts], []
    except MemoryError:
        raise
    except Exception:
        return _read_apart(parts)


def _read_apart(
    parts: Sequence[FragmentState | bytes],
) -> tuple[list[FragmentState], list[CommitFailure]]:
    states: list[FragmentState] = []
    unread: list[CommitFailure] = []
    for part in parts:
        if not isinstance(part, bytes):
            states.append(part)
            continue
        try:
            states.append(state_of(part))
        except MemoryError:
            raise
        except Exception as error:
            detail = f"the changes cannot be read: {type(error).__name__}"
            unread.append(CommitFailure("", DeadLetterReason.MERGE_FAILED, detail, EncodedState(part)))
    return states, unread


def joined(parts: Sequence[FragmentState]) -> list[FragmentState]:
    """One state of all parts; where they cannot be joined, the parts."""
    if len(parts) == 1:
        return list(parts)
    erasure_epoch = [part.erasure_epoch for part in parts]
    kept = [codec.encode(part) for part in parts]
    try:
        whole = _joined_as_bytes(kept) or _joined(parts)
    except MemoryError:
        raise
    except Exception:
        apart = [state_of(each) for each in kept]
        for state, its in zip(apart, erasure_epoch, strict=True):
            state.erasure_epoch = its
        return apart
    # What forbids one part forbids the whole: an erasure that came since is later than all that were judged.
    whole.erasure_epoch = min(erasure_epoch)
    return [whole]


def _joined_as_bytes(parts: Sequence[bytes]) -> FragmentState | None:
    # Reference: `_joined`.
    if native.states is None or any(part[:1] != codec.FORMAT for part in parts):
        return None
    body = native.states.join_all(tuple(codec.body(part) for part in parts))
    return None if body is None else EncodedState(codec.framed(body))


def _joined(parts: Sequence[FragmentState]) -> FragmentState:
    whole, *others = parts
    for other in others:
        whole.join(other)
    validate(whole)
    return whole


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
