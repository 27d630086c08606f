"""Many documents in few requests, each decided by its version alone.

A profile's version V is Elasticsearch's version 2V; its erasure is a document without fields at 2V + 1. So one
number decides, in the step that writes: what is older changes nothing, the same version replaces, an erasure beats
the version it erases, and what comes later beats the erasure.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from idgraph.model.errors import ProfileIndexError
from sinks.elasticsearch.client import (
    BLOCKED,
    TOO_LARGE,
    TOO_MANY,
    ElasticsearchClient,
    ElasticsearchRefusedError,
    Pause,
)
from sinks.elasticsearch.schema import TOMBSTONE

REQUEST_BYTES = 5 << 20
REQUEST_ACTIONS = 2000
"""The most of one request."""

STALE = "stale"
"""The refusal of an action when there is a later document."""

TAKEN = (None, STALE)
"""Outcomes after which a document is as it should be."""

_CONFLICT = 409
_FIRST_REFUSAL = 300
_OF_THE_INDEX = frozenset({401, 403, 404})
"""Refusals that are not about the document."""


class Action(NamedTuple):
    """Put `source`, the JSON of a document, under a key, unless something later is there."""

    key: str
    version: int
    source: bytes


def key_of(name: bytes) -> str:
    """The document's id in Elasticsearch, by the keyed hash of its id: that may be too long, or personal data,
    which must not stay where it was erased."""
    return base64.urlsafe_b64encode(name).rstrip(b"=").decode("ascii")


def alive(version: int) -> int:
    """Elasticsearch's version of a profile's."""
    return 2 * version


def erased(version: int) -> int:
    """Elasticsearch's version of the erasure of a profile's version, and of all before it."""
    return 2 * version + 1


def write(
    client: ElasticsearchClient, index: str, actions: Sequence[Action], is_alias: bool
) -> list[str | None]:
    """The refusal of each action, in their order: None when it was not, STALE, else Elasticsearch's name
    for the reason. Durable when it returns, not visible yet.

    If one request has too many documents, those that were too much are retried, without the others. Raises
    ProfileIndexError when the index is away, or busy for too long.
    """
    outcomes: list[str | None] = [None] * len(actions)
    for page in _pages(actions):
        left = list(page)
        pause = Pause(index)
        while left:
            again: list[int] = []
            for number, status, reason in _send(client, index, actions, left, is_alias):
                if status == TOO_MANY or status >= 500 or reason == BLOCKED:
                    again.append(number)
                elif status in _OF_THE_INDEX:
                    raise ElasticsearchRefusedError(index, status, reason)
                elif status >= _FIRST_REFUSAL:
                    outcomes[number] = STALE if status == _CONFLICT else reason
            left = again
            if left:
                pause.busy()
    return outcomes


def _send(
    client: ElasticsearchClient, index: str, actions: Sequence[Action], chosen: list[int], is_alias: bool
) -> Iterator[tuple[int, int, str]]:
    """One request, or several when it is too large for the server: number, status and reason of each action."""
    body = b"".join(map(_lines, (actions[each] for each in chosen)))
    try:
        answer = client.call(
            lambda api: api.bulk(
                index=index,
                operations=body,
                # Else a name that is not there would become an index, with a mapping that Elasticsearch guesses.
                require_alias=is_alias,
                # The wait for a shard without a primary.
                timeout="10s",
                filter_path=["items.*.status", "items.*.error.type"],
            )
        )
    except ElasticsearchRefusedError as error:
        if error.reason == BLOCKED:
            yield from ((number, TOO_MANY, BLOCKED) for number in chosen)
            return
        if error.status != TOO_LARGE:
            raise
        if len(chosen) == 1:
            yield chosen[0], TOO_LARGE, error.reason
            return
        half = len(chosen) // 2
        yield from _send(client, index, actions, chosen[:half], is_alias)
        yield from _send(client, index, actions, chosen[half:], is_alias)
        return
    items = answer.get("items", [])
    if len(items) != len(chosen):
        raise ProfileIndexError(f"Elasticsearch index {index}: an answer does not fit its request")
    for number, item in zip(chosen, items, strict=True):
        result: dict[str, Any] = item["index"]
        yield number, int(result["status"]), str(result.get("error", {}).get("type"))


def _lines(action: Action) -> bytes:
    head = f'{{"index":{{"_id":"{action.key}","version":{action.version},"version_type":"external_gte"}}}}\n'
    return b"%b%b\n" % (head.encode("ascii"), action.source)


def _pages(actions: Sequence[Action]) -> Iterator[range]:
    start = size = 0
    for number, action in enumerate(actions):
        if number > start and (
            size + len(action.source) > REQUEST_BYTES or number - start == REQUEST_ACTIONS
        ):
            yield range(start, number)
            start, size = number, 0
        size += len(action.source)
    if actions:
        yield range(start, len(actions))


def erase(client: ElasticsearchClient, index: str, versions: Mapping[str, int], is_alias: bool) -> list[bool]:
    """Put tombstones: by key Elasticsearch's version of each. Gives of each whether it was not there already, nor
    anything later."""
    actions = [Action(key, version, TOMBSTONE) for key, version in versions.items()]
    outcomes = write(client, index, actions, is_alias)
    if left := {each for each in outcomes if each not in TAKEN}:
        raise ProfileIndexError(f"Elasticsearch index {index}: an erasure was refused: {min(map(str, left))}")
    return [each is None for each in outcomes]
