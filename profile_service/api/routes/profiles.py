"""Routes for look-ups by identifier or profile id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BeforeValidator

from idgraph.model.callers import Caller, Scope
from idgraph.model.errors import IdgraphError
from idgraph.model.identifiers import Identifier, given_identifier
from idgraph.model.pins import PinRecord
from idgraph.model.stamps import read_moment
from idgraph.web.application import Look
from idgraph.web.conditional import IfNoneMatch, is_listed
from idgraph.web.cursors import ListPage
from idgraph.web.path_values import decoded, path_value
from idgraph.web.refusals import ClashError, UnknownSubjectError
from profile_service.api.dependencies import AFTER_COMMIT, ActingCaller, Service, WantedParts
from profile_service.api.documents import (
    ExplanationDocument,
    FoundProfile,
    Items,
    LookupResults,
    ProfileHistory,
    TimelineEntry,
    TimelineSpan,
    answer,
    plain_answer,
)
from profile_service.consents import consents_by_fragment
from profile_service.link_documents import link_document, periods_document, pin_document
from profile_service.links import Explanation, Links, ShownLink, StoredIdentifier
from profile_service.reader import Profile, ProfileReader, provenance_of
from profile_service.request_bodies import LookupBody
from profile_service.searching import warned
from profile_service.service import Looked, ProfileService
from profile_service.timeline import TimelineRequest, spans_of
from profile_service.timeline import timeline as timeline_page
from profile_service.wanted import Plain, Wanted

router = APIRouter(prefix="/v1/profiles", tags=["profiles"])

T = TypeVar("T")

READ_TOGETHER = 10
"""Identifiers of one request, between which others have their turn."""


async def _identifier(
    request: Request,
    identifier: Annotated[  # noqa: ARG001 - described here, and read as it was sent
        str, Path(description="`type:value`, percent-encoded; a slash in the value is `%2F`.")
    ],
) -> Identifier:
    return given_identifier(path_value(request, 3))


Activity = Annotated[list[str] | None, Query(max_length=100, description="Of these activities alone.")]
_Moment = BeforeValidator(read_moment, json_schema_input_type=int | str)
_FORMS = "epoch milliseconds, or RFC 3339 with an offset"
Since = Annotated[int | None, _Moment, Query(description=f"At or after this moment: {_FORMS}.")]
Until = Annotated[int | None, _Moment, Query(description=f"Before this moment: {_FORMS}.")]
AskedIdentifier = Annotated[Identifier, Depends(_identifier)]


def the_profile(service: ProfileService, caller: Caller, identifier: Identifier, wanted: Wanted) -> Profile:
    """The one profile of an identifier. Raises UnknownSubjectError, ClashError."""
    profile = _unshared(service.lookup(caller, identifier, wanted))
    service.require_found(profile is not None)
    return _existing(profile)


def _unshared(looked: Looked) -> Profile | None:
    if looked.is_shared:
        raise ClashError("several profiles share this identifier, and it belongs to none of them")
    return looked.profiles[0] if looked.profiles else None


def _existing(found: T | None) -> T:
    if found is None:
        raise UnknownSubjectError("no profile has this identifier")
    return found


@router.get(
    "/{identifier}",
    response_model=FoundProfile,
    responses={304: {"description": "Nothing changed."}},
    dependencies=[AFTER_COMMIT],
)
async def get(
    identifier: AskedIdentifier,
    service: Service,
    caller: ActingCaller,
    wanted: WantedParts,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The profile of an identifier, whichever of its systems it is from, or of a profile id. 404: none that this caller may
    know of. 409: several profiles share the identifier, and the rules give it to none of them."""
    if wanted.is_plain:
        looked_up = partial(service.plain, caller, identifier, partial(is_listed, header=if_none_match))
        if (plain := await service.answer(wanted, looked_up)) is not None:
            return plain_answer(*plain)
    profile = _unshared(await service.answer(wanted, partial(service.lookup, caller, identifier, wanted)))
    await service.require_any(profile is not None)
    found = _existing(profile)
    warnings = await service.warnings(caller, wanted, [found])
    return answer(warned(wanted.document(found), warnings), if_none_match)


def plain_look(service: ProfileService) -> Look:
    """`get` without parameters, as most look-ups are."""

    def look(caller: Caller, named: bytes, known: str | None) -> Plain | None:
        if not service.is_local:
            return None
        try:
            only_kept = not service.is_immediate()
            identifier = given_identifier(decoded(named))
            return service.plain(caller, identifier, partial(is_listed, header=known), only_kept)
        except IdgraphError:
            return None

    return look


@router.post("/lookup", response_model=LookupResults, dependencies=[AFTER_COMMIT])
async def lookup(body: LookupBody, service: Service, caller: ActingCaller) -> Response:
    """The profiles of up to 100 identifiers, in their order."""
    wanted = body.wanted(service, caller)
    wanted.sharing = body.sharing
    identifiers = [given_identifier(text) for text in body.identifiers]
    looked: list[Looked] = []
    for start in range(0, len(identifiers), READ_TOGETHER):
        page = identifiers[start : start + READ_TOGETHER]
        await asyncio.sleep(0)
        looked += await service.answer(wanted, partial(service.lookup_each, caller, page, wanted))
    items = [each.item(text, wanted) for text, each in zip(body.identifiers, looked, strict=True)]
    await service.require_any(any(item["profile"] for item in items))
    profiles = [profile for each in looked for profile in each.profiles[:1]]
    return answer(warned({"items": items}, await service.warnings(caller, wanted, profiles)))


@router.get("/{identifier}/explain", response_model=Items[ExplanationDocument])
def explain(
    identifier: AskedIdentifier,
    service: Service,
    caller: ActingCaller,
    other: Annotated[
        str | None,
        Query(alias="with", max_length=4096, description="Another identifier, `type:value`: with `path`."),
    ] = None,
) -> Response:
    """The reasons why the identifiers of a profile are one person: each link's evidence, and refused links,
    as far as the caller may know of both identifiers. Several, where profiles share the identifier and it
    belongs to nobody."""
    reader = service.reader(caller)
    links = service.links(reader)
    found = links.explain(identifier) if reader.sees_type(identifier.type) else []
    service.require_found(bool(found))
    _existing(bool(found) or None)
    items = [_explanation(each, reader, Scope.LINKS in caller.scopes) for each in found]
    if other is not None:
        named = given_identifier(other)
        ends = [links.stored(each) if reader.sees_type(each.type) else None for each in (identifier, named)]
        one, far = map(_existing, ends)
        for each, item in zip(found, items, strict=True):
            item["path"] = _path(links, each, (one, far), reader)
    return answer({"items": items})


def _path(
    links: Links, found: Explanation, ends: tuple[StoredIdentifier, StoredIdentifier], reader: ProfileReader
) -> list[dict[str, Any]]:
    """The links between two identifiers; one with an end that the caller may not see is left out."""
    path = found.path(*(each.identifier for each in ends))
    splitting = links.splitting(ends, [link.pair for _, link in path])
    return [
        {"to": str(there), "splits": link.pair in splitting, **document}
        for there, link in path
        for document in shown_links([link], reader)
    ]


def shown_links(some: Iterable[ShownLink], reader: ProfileReader) -> list[dict[str, Any]]:
    """Those whose two identifiers a reader may see."""
    documents = []
    for each in some:
        if all(reader.sees_type(end.type) for end in each.pair):
            document = link_document(each._replace(pin=None))
            documents.append(document | ({"decision": each.pin.decision} if each.pin else {}))
    return documents


def _explanation(found: Explanation, reader: ProfileReader, sees_reasons: bool) -> dict[str, Any]:
    return {
        "id": reader.shown_name(found.id),
        "identifiers": [str(each) for each in found.identifiers if reader.sees_type(each.type)],
        "accepted": shown_links(found.accepted, reader),
        "refused": shown_links(found.refused, reader),
        "values": [
            {"path": leaf.path, "value": leaf.value, **provenance_of(leaf)}
            | {"lost": [{"value": each.value, **provenance_of(each)} for each in lost]}
            for leaf, lost in reader.candidates(found.person)
        ],
        "decisions": _decisions(found.pins, reader, sees_reasons),
    }


def _decisions(pins: Iterable[PinRecord], reader: ProfileReader, sees_reasons: bool) -> list[dict[str, Any]]:
    """Those on two identifiers that a reader may see."""
    hidden = () if sees_reasons else ("who", "why")
    return [
        {name: value for name, value in pin_document(each).items() if name not in hidden}
        for each in pins
        if all(reader.sees_type(name.partition(":")[0]) for name in (each.low, each.high))
    ]


@router.get("/{identifier}/timeline", response_model=ListPage[TimelineEntry])
def timeline(
    identifier: AskedIdentifier,
    service: Service,
    caller: ActingCaller,
    activity: Activity = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=8192)] = None,
) -> Response:
    """The entries that a person's events left in the timelines of activities, the newest first."""
    wanted = TimelineRequest(activity or (), since, until, limit, cursor)
    return answer(timeline_page(service, caller, identifier, wanted).model_dump())


@router.get("/{identifier}/timeline/spans", response_model=Items[TimelineSpan])
def timeline_spans(
    identifier: AskedIdentifier,
    service: Service,
    caller: ActingCaller,
    activity: Activity = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """The sessions and matches of patterns in a person's timelines that reach into a time, the newest first, whether or not the
    derived attribute counts them."""
    wanted = TimelineRequest(activity or (), since, until, limit)
    return answer({"items": spans_of(service, caller, identifier, wanted)})


@router.get("/{identifier}/history", response_model=ProfileHistory)
def history(identifier: AskedIdentifier, service: Service, caller: ActingCaller) -> Response:
    """Earlier owners of an identifier: the fragments that carry it, and the profiles that each was part of. Also decisions on
    the links and consents of the profile that has it, or of some that share it if it belongs to nobody."""
    reader = service.reader(caller)
    links = service.links(reader)
    known = links.stored(identifier) if reader.sees_type(identifier.type) else None
    carriers = known.carriers if known else ()
    service.require_found(bool(carriers))
    _existing(bool(carriers) or None)
    periods = service.history(reader).periods(carriers)
    owners = reader.owning(reader.stored_forms(identifier))
    persons = owners.persons or owners.sharing
    consents = consents_by_fragment(reader, persons)
    body = {
        "items": [periods_document(*each) for each in periods.items()],
        "decisions": _decisions(links.decisions(persons), reader, Scope.LINKS in caller.scopes),
        "consents": [{"fragment": name, **consent._asdict()} for name, consent in consents],
    }
    return answer(body)
