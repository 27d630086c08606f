"""Routes for the audit log of this service: who revealed what of whom and why, and all other acts, for the scope
`privacy`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from idgraph.model.callers import Caller
from idgraph.model.identifiers import Identifier, given_identifier
from idgraph.web.cursors import from_cursor, to_cursor
from profile_service.api.dependencies import Officer, Service
from profile_service.api.documents import answer
from profile_service.service import ProfileService
from profile_service.visibility import HIGHEST

MOST_NAMES = 50

router = APIRouter(prefix="/v1/audit", tags=["privacy"])


class AuditEntry(BaseModel):
    """An act, noted before it was done. Further members say more of some acts."""

    at: str
    action: str = Field(
        description="Such as `reveal`, `refused reveal`, `erasure`, `pin never`, `start export`."
    )
    caller: str
    purpose: str | None = None
    profile: str | None = Field(default=None, description="`type:~` and a keyed hash.")
    subject: str | None = None
    attributes: list[str] | None = Field(default=None, description="Those that the caller may know of.")


class AuditPage(BaseModel):
    """The newest first. One answer looks at a bounded part; `next` goes on behind it, also of an empty page."""

    items: list[AuditEntry]
    next: str | None
    profiles: list[str] = Field(description="The hashes of the person that was asked for.")


class AuditCheck(BaseModel):
    """The number of whole entries, the hash of the last of them, and the line of the first that was
    altered."""

    entries: int
    head: str
    broken_line: int | None


@router.get("", response_model=AuditPage)
def list_(
    service: Service,
    officer: Officer,
    action: Annotated[str, Query(max_length=100, description="Beginning of the action.")] = "",
    who: Annotated[str, Query(max_length=300, description="The caller, exactly.")] = "",
    profile: Annotated[
        list[Annotated[str, Field(max_length=4096)]],
        Query(max_length=MOST_NAMES, description="An identifier of a person, or hashes of one."),
    ] = [],  # noqa: B006 - never changed
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Acts on profiles."""

    hashes = {each for name in profile for each in _hashes(service, officer, given_identifier(name))}

    def takes(entry: dict[str, Any]) -> bool:
        is_meant = not profile or entry.get("profile") in hashes or entry.get("other") in hashes
        return (
            is_meant and str(entry.get("action", "")).startswith(action) and who in ("", entry.get("caller"))
        )

    before = None if cursor is None else from_cursor(cursor, int)
    found, following = service.audit.newest(limit, before, takes)
    sees = service.reader(officer).sees
    for entry in found:
        if "attributes" in entry:
            entry["attributes"] = [path for path in entry["attributes"] if sees(path)]
    place = None if following is None else to_cursor(following)
    return answer({"items": found, "next": place, "profiles": sorted(hashes)[:MOST_NAMES]})


def _hashes(service: ProfileService, officer: Caller, identifier: Identifier) -> Iterator[str]:
    """The names under which the log has a person: by each fragment, as what is one person now may have been several."""
    yield service.hashed(str(identifier))
    reader = service.reader(officer.model_copy(update={"clearance": HIGHEST}))
    for person in reader.owning(reader.stored_forms(identifier)).persons:
        yield from (service.hashed(each.stored.id) for each in person.members)


@router.post("/verify", response_model=AuditCheck)
def verify(service: Service, _: Officer) -> Response:
    """Check the whole chain. A head that was noted elsewhere shows whether the end was cut off."""
    return answer(service.audit.verify()._asdict())
