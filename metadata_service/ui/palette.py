"""The palette: one field that finds pages, attributes, specs and profiles. The typed text is in no address."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Response

from idgraph.model.errors import ProfileServiceError
from idgraph.web.cursors import PageRequest
from metadata_service.attributes.catalogue import AttributeFilter, search_attributes
from metadata_service.specs.catalogue import list_specs
from metadata_service.ui.frame import pages_of
from metadata_service.ui.page import OwnFields, OwnPage, SignedIn
from metadata_service.ui.profile_search import named_profiles
from metadata_service.ui.profiles import address_of

router = APIRouter()

MOST = 5
"""Matches of each kind."""
LONGEST = 1000
SERVICE_SECONDS = 2.0


@router.post("/ui/palette")
def find(page: SignedIn, fields: OwnFields) -> Response:
    """Matches of the typed words, pages first; without words, the pages."""
    typed = fields.get("q", "").strip()[:LONGEST]
    words = typed.lower().split()
    pages = [each for each in pages_of(page.session) if all(word in each.title.lower() for word in words)]
    if not typed:
        return page.render("palette.html", pages=pages)
    found: dict[str, Any] = {"pages": pages[:MOST], "profiles": _profiles(page, typed)}
    first = PageRequest(None, MOST)
    with page.database.read() as reading:
        if page.may("GET", "/v1/attributes"):
            found["attributes"] = search_attributes(reading, AttributeFilter(words=typed), first).items
        if page.may("GET", "/v1/specs"):
            found["specs"] = list_specs(reading, first, typed).items
    return page.render("palette.html", typed=typed, **found)


def _profiles(page: OwnPage, typed: str) -> list[tuple[str, str]]:
    """Names and addresses."""
    with suppress(ProfileServiceError), page.profiles(SERVICE_SECONDS) as client:
        profiles = named_profiles(client, typed, page.database)[:MOST]
        return [(each["id"], address_of(each)) for each in profiles]
    return []
