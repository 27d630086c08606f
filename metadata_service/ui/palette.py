"""The palette: one field that finds pages, attributes, specs and profiles. What is typed is in no address."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Response

from idgraph.model.errors import ProfileServiceError
from idgraph.web.cursors import PageRequest
from metadata_service.attributes.catalogue import AttributeFilter, search_attributes
from metadata_service.specs.catalogue import list_specs
from metadata_service.ui.frame import ATTRIBUTES, pages_of
from metadata_service.ui.page import OwnFields, OwnPage, SignedIn
from metadata_service.ui.profile_search import named_profiles
from metadata_service.ui.profiles import LIST, address_of

router = APIRouter()

MOST = 5
"""Of each kind."""
LONGEST = 1000
SERVICE_SECONDS = 2.0


class PaletteOption(NamedTuple):
    """What the palette offers. `name` of a profile is `type:value`."""

    kind: str
    icon: str
    name: str
    url: str


@router.post("/ui/palette")
def find(page: SignedIn, fields: OwnFields) -> Response:
    """What the words mean, the pages first; nothing typed: the pages."""
    typed = fields.get("q", "").strip()[:LONGEST]
    found = [
        PaletteOption("page", each.icon, each.title, each.url)
        for each in pages_of(page.session)
        if all(word in each.title.lower() for word in typed.lower().split())
    ]
    if typed:
        found = found[:MOST] + _catalogue(page, typed) + _profiles(page, typed)
    can_search = bool(typed) and page.session.profiles_token is not None
    return page.render("palette.html", found=found, typed=typed, can_search=can_search)


def _catalogue(page: OwnPage, typed: str) -> list[PaletteOption]:
    found: list[PaletteOption] = []
    with page.database.read() as reading:
        if page.may("GET", "/v1/attributes"):
            attributes = search_attributes(reading, AttributeFilter(words=typed), PageRequest(None, MOST))
            for each in attributes.items:
                url = f"{ATTRIBUTES}/{quote(each.path, safe='')}"
                found.append(PaletteOption("attribute", "search", each.path, url))
        if page.may("GET", "/v1/specs"):
            specs = list_specs(reading, PageRequest(None, MOST), typed)
            names = [each.document.name for each in specs.items]
            found += [
                PaletteOption("spec", "spec", name, f"/ui/specs/{quote(name, safe='')}") for name in names
            ]
    return found


def _profiles(page: OwnPage, typed: str) -> list[PaletteOption]:
    with suppress(ProfileServiceError), page.profiles(SERVICE_SECONDS) as client:
        profiles = named_profiles(client, typed, page.database)[:MOST]
        return [
            PaletteOption("profile", "person", each["id"], f"{LIST}/{address_of(each)}") for each in profiles
        ]
    return []
