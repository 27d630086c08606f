"""Routes for look-ups by identifier or profile id."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Path, Request, Response

from idgraph.model.errors import QueryError
from idgraph.model.identifiers import Identifier
from idgraph.web.conditional import IfNoneMatch
from idgraph.web.refusals import BadQueryError, ClashError, UnknownSubjectError
from profile_service.api.documents import (
    Explanations,
    Histories,
    LookupBody,
    LookupResults,
    ProfileDocument,
    answer,
)
from profile_service.api.service import ActingCaller, Service, WantedParts
from profile_service.link_documents import link_document, periods_document
from profile_service.links import Explanation, ShownLink
from profile_service.reader import ProfileReader

router = APIRouter(prefix="/v1/profiles", tags=["profiles"])


def _identifier(text: str) -> Identifier:
    try:
        return Identifier.parse(text)
    except ValueError as error:
        raise QueryError(str(error)) from None


def _of_url(request: Request) -> Identifier:
    """The third part of the path as it was sent, decoded once: a value can hold slashes, plus signs and percent signs."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    try:
        return _identifier(unquote(raw.partition(b"?")[0].split(b"/")[3].decode("ascii"), errors="strict"))
    except UnicodeDecodeError:
        raise BadQueryError("the identifier in the URL is not UTF-8, percent-encoded") from None


IdentifierInPath = Annotated[
    str, Path(description="`type:value`, percent-encoded; a slash in the value is `%2F`.")
]


@router.get(
    "/{identifier}", response_model=ProfileDocument, responses={304: {"description": "Nothing changed."}}
)
def get(
    identifier: IdentifierInPath,  # noqa: ARG001 - as it was sent: `_of_url`
    request: Request,
    service: Service,
    caller: ActingCaller,
    wanted: WantedParts,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The profile of an identifier, whichever of its systems it is from, or of a profile id. 404: none that this caller may
    know of. 409: several profiles share the identifier, and the rules give it to none of them."""
    reader, identifier_asked = service.reader(caller), _of_url(request)
    with nullcontext() if wanted.reveal else service.turn:
        found = reader.lookup(identifier_asked, wanted.reveal)
    service.require_found(bool(found))
    if reader.shared:
        raise ClashError("several profiles share this identifier, and it belongs to none of them")
    profiles = wanted.read(service, caller, found, reader)
    if not profiles:
        raise UnknownSubjectError("no profile has this identifier")
    return answer(profiles[0].canonical(wanted.provenance), if_none_match)


@router.post("/lookup", response_model=LookupResults)
def lookup(body: LookupBody, service: Service, caller: ActingCaller) -> Response:
    """The profiles of up to 100 identifiers, in their order."""
    wanted = body.wanted(caller)
    items: list[dict[str, Any]] = []
    for text in body.identifiers:
        reader = service.reader(caller)
        found = reader.lookup(_identifier(text), wanted.reveal)
        profiles = [] if reader.shared else wanted.read(service, caller, found, reader)
        profile = profiles[0].canonical(wanted.provenance) if profiles else None
        items.append({"identifier": text, "profile": profile, "is_shared": bool(reader.shared)})
    service.require_found(any(item["profile"] for item in items))
    return answer({"items": items})


@router.get("/{identifier}/explain", response_model=Explanations)
def explain(
    identifier: IdentifierInPath,  # noqa: ARG001 - as it was sent: `_of_url`
    request: Request,
    service: Service,
    caller: ActingCaller,
) -> Response:
    """Why the identifiers of a profile are one person: the evidence of each link, and the links that the rules refused, as far
    as the caller may know of both identifiers."""
    reader, wanted = service.reader(caller), _of_url(request)
    found = service.links(reader).explain(wanted) if reader.sees_type(wanted.type) else []
    service.require_found(bool(found))
    if not found:
        raise UnknownSubjectError("no profile has this identifier")
    return answer({"items": [_explanation(each, reader) for each in found]})


def _explanation(found: Explanation, reader: ProfileReader) -> dict[str, Any]:
    def links(some: Iterable[ShownLink]) -> list[dict[str, Any]]:
        documents = []
        for each in some:
            if all(reader.sees_type(end.type) for end in each.pair):
                document = link_document(each._replace(pin=None))
                documents.append(document | ({"decision": each.pin.decision} if each.pin else {}))
        return documents

    return {
        "id": reader.shown_name(found.id),
        "identifiers": [str(each) for each in found.identifiers if reader.sees_type(each.type)],
        "accepted": links(found.accepted),
        "refused": links(found.refused),
    }


@router.get("/{identifier}/history", response_model=Histories)
def history(
    identifier: IdentifierInPath,  # noqa: ARG001 - as it was sent: `_of_url`
    request: Request,
    service: Service,
    caller: ActingCaller,
) -> Response:
    """Who owned an identifier when: the fragments that carry it, and which profiles each was part of."""
    reader, wanted = service.reader(caller), _of_url(request)
    known = service.links(reader).stored(wanted) if reader.sees_type(wanted.type) else None
    service.require_found(known is not None)
    if known is None:
        raise UnknownSubjectError("no profile has this identifier")
    periods = service.history(reader).periods(known.carriers)
    return answer({"items": [periods_document(*each) for each in periods.items()]})
