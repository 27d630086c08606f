"""The feed of merges, splits, crossings of segments and changes in them: in pages, or as server-sent events."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.model.errors import IdgraphError
from idgraph.web.cursors import ListPage
from idgraph.web.refusals import RateError, UnknownSubjectError
from profile_service.api.dependencies import ActingCaller, Service
from profile_service.api.documents import MoveDocument, answer
from profile_service.api.person_tokens import charged_name
from profile_service.link_documents import move_document
from profile_service.service import ProfileService

EVENT_STREAM = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
POLL_SECONDS = 0.5
MOST_STREAMS, MOST_STREAMS_IN_ALL = 10, 200
"""Each asks the store twice a second."""
RETRY_SECONDS = 10
KIND = "changes"
PAGE = 100
_LONGEST_POSITION, _LONGEST_PLACE = 20, 400
"""Characters of a number, and of a cursor of DynamoDB, which has the name of a segment."""
_LONGEST_CURSOR = 600

SegmentName = Annotated[
    str | None, Query(max_length=100, description="Only who entered, left and changed in this one.")
]

router = APIRouter(prefix="/v1/changes", tags=["changes"])


class _Stream(StreamingResponse):
    """A stream, which counts for its caller until it ends for any reason."""

    def __init__(self, events: AsyncIterator[bytes], open_streams: Counter[str], name: str) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store"}, media_type=EVENT_STREAM)
        self._open, self._name = open_streams, name
        open_streams[name] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open[self._name] -= 1
            self._open += Counter()  # Names without an open stream go.


@router.get(
    "",
    response_model=ListPage[MoveDocument],
    responses={200: {"content": {EVENT_STREAM: {}}, "description": "A page, or with this type a stream."}},
)
async def get(
    request: Request,
    service: Service,
    caller: ActingCaller,
    cursor: Annotated[str, Query(max_length=_LONGEST_CURSOR, description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    segment: SegmentName = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[str | None, Header(max_length=_LONGEST_CURSOR)] = None,
) -> Response:
    """Merges, splits and moves between profiles, and who entered, left and changed in segments; the oldest first. Keep
    `next` for what comes later. As server-sent events, each has its cursor as id, and the stream goes on."""
    begin = cursor if last_event_id is None else last_event_id
    items, behind = await run_in_threadpool(_page, service, caller, begin, limit, segment)
    if EVENT_STREAM not in accept:
        return answer({"items": items, "next": behind})
    name = charged_name(caller)
    if service.streams[name] >= MOST_STREAMS or service.streams.total() >= MOST_STREAMS_IN_ALL:
        raise RateError(
            RETRY_SECONDS,
            f"a caller has at most {MOST_STREAMS} streams of changes, and all together {MOST_STREAMS_IN_ALL}; end one first",
        )
    return _Stream(_events(service, request, caller, begin, segment), service.streams, name)


def _page(
    service: ProfileService, caller: Caller, cursor: str, limit: int, segment: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Visible changes behind a cursor, and the cursor behind them. Raises UnknownSubjectError, QueryError."""
    reader = service.reader(caller)
    visible = reader.segments()
    if segment is not None and segment not in visible:
        raise UnknownSubjectError("there is no such segment")
    size = max(limit, PAGE)
    begin = service.cursors.open(cursor, KIND, salted=True).rstrip() if cursor else ""
    items: list[dict[str, Any]] = []

    def sealed(place: str, salt: bytes) -> str:
        # Its length would reveal the hidden segment of the last entry.
        padded = place.ljust(_LONGEST_PLACE if len(place) > _LONGEST_POSITION else _LONGEST_POSITION)
        return service.cursors.seal(padded, KIND, salt)

    # An empty page says that nothing follows: callers stop there.
    while True:
        history = service.history(reader)
        end = history.end(begin)
        found = history.page(begin, size, segment, reader.sees_all)
        # Hidden entries are read only once.
        begin = begin if found else end
        for each in found:
            begin = each.cursor
            if not each.segment or each.segment in visible:
                items.append(move_document(each) | {"cursor": sealed(begin, bytes(8))})
                if len(items) == limit:
                    return items, sealed(begin, os.urandom(8))
        if items or len(found) < size:
            break
    # A `next` that moved would reveal that something hidden happened.
    return items, sealed(begin, os.urandom(8))


async def _events(
    service: ProfileService, request: Request, caller: Caller, cursor: str, segment: str | None
) -> AsyncIterator[bytes]:
    """The entries behind a cursor, until the caller leaves, may not read any more, or the service stops."""
    quiet_since = time.monotonic()
    while not service.is_stopping and not await request.is_disconnected():
        present = service.following.still(caller)
        if present is None:
            return
        try:
            items, cursor = await run_in_threadpool(_page, service, present, cursor, 100, segment)
        except IdgraphError:
            # The stream is under way: the caller connects again, and is answered with the problem.
            return
        for each in items:
            yield (
                f"id: {each['cursor']}\nevent: {each['kind']}\ndata: ".encode()
                + canonical.encode(each)
                + b"\n\n"
            )
        if items or time.monotonic() > quiet_since + HEARTBEAT_SECONDS:
            quiet_since = time.monotonic()
            yield b": alive\n\n"
        if not items:
            await asyncio.sleep(POLL_SECONDS)
