"""The numbers in the navigation: what waits for this person. The page asks for them by itself, and they are kept for seconds."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from idgraph.model.attributes import AttributeStatus
from idgraph.model.errors import ProfileServiceError
from metadata_service.api.service import MetadataService, Service
from metadata_service.attributes.catalogue import AttributeFilter, total_attributes
from metadata_service.storage.sessions import Session
from metadata_service.ui.overview import decisions
from metadata_service.ui.page import Watching, may, pages_of, render
from metadata_service.ui.profiles import profiles_client

router = APIRouter()

KEPT_SECONDS = 5.0
MOST_KEPT = 1000
MOST_DISCOVERED = 1000
SERVICE_SECONDS = 2.0
REVIEW, DEAD_LETTERS = "/ui/review/violations", "/ui/dead-letters"
BOUNDS = {DEAD_LETTERS: 1000, REVIEW: 50, "/ui/attributes": MOST_DISCOVERED}
"""What reached its bound may be more."""


class KnownCounts:
    """Counts by session, each for some seconds. What two threads count at once is the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, dict[str, int]]] = {}

    def of(self, request: Request, session: Session, service: MetadataService) -> dict[str, int]:
        """What waits, by the page that it waits on."""
        until, found = self._known.get(session.csrf, (0.0, {}))
        if time.monotonic() > until:
            found = _counts(request, session, service)
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[session.csrf] = time.monotonic() + KEPT_SECONDS, found
        return found


def _known(request: Request) -> KnownCounts:
    known: KnownCounts = request.app.state.waiting
    return known


@router.get("/ui/waiting")
def show(
    request: Request, session: Watching, service: Service, known: Annotated[KnownCounts, Depends(_known)]
) -> Response:
    """The numbers beside the pages that this person may use."""
    counts = known.of(request, session, service)
    shown = [(item, counts.get(item.url, 0), BOUNDS.get(item.url)) for item in pages_of(session)]
    return render(request, "waiting.html", session, counts=shown)


def _counts(request: Request, session: Session, service: MetadataService) -> dict[str, int]:
    found: dict[str, int] = {}
    with service.database.read() as reading:
        for each in decisions(reading, session):
            place = "/".join(each.url.partition("?")[0].split("/")[:3])
            found[place] = found.get(place, 0) + (each.number or 0)
        if may(session, "POST", "/v1/attribute-edits"):
            wanted = AttributeFilter(status=(AttributeStatus.DISCOVERED,))
            found["/ui/attributes"] = total_attributes(reading, wanted, MOST_DISCOVERED)
    # Without the profile service the pages of the catalogue still have theirs.
    with suppress(ProfileServiceError), profiles_client(request, session, SERVICE_SECONDS) as client:
        counts = client.call("GET", "waiting")
        found[DEAD_LETTERS], found[REVIEW] = counts["dead_letters"] or 0, counts["suggestions"] or 0
    return found
