"""Routes that a person calls: households and own consents; and the one that gives a person a token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from idgraph.model.callers import Caller, Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.households import HouseholdEntry
from idgraph.model.identifiers import HASHED_PREFIX, Identifier, given_identifier
from idgraph.web.conditional import IfNoneMatch
from idgraph.web.refusals import RefusedRequestError, UnknownSubjectError
from merge.identity.components import Person
from profile_service.api.dependencies import Officer, Service, WantedParts, scoped
from profile_service.api.documents import ConsentDocument, FoundProfile, Items, answer
from profile_service.api.households import Acting, Household, Households, Share
from profile_service.api.person_tokens import ActingPerson
from profile_service.api.rights import required
from profile_service.api.routes.consents import ConsentDecision, Purpose, Recorded, record_decision
from profile_service.api.routes.profiles import AskedIdentifier, the_profile
from profile_service.consents import consents_of
from profile_service.link_documents import time_text
from profile_service.reader import Profile, ProfileReader
from profile_service.searching import warned
from profile_service.service import ProfileService
from profile_service.visibility import HIGHEST
from profile_service.wanted import MASKED, Wanted

issuing = APIRouter(prefix="/v1/person-tokens", tags=["households"])
reading = APIRouter(prefix="/v1/profiles/{identifier}/households", tags=["households"])
router = APIRouter(prefix="/v1/me", tags=["households"])


class PersonTokenBody(StrictDocument):
    """The receiver of a token: a person whom the caller has authenticated."""

    identifier: str = Field(max_length=4096, description="`type:value`.")
    minutes: int = Field(default=15, ge=1, le=60)


class PersonTokenDocument(BaseModel):
    """A bearer token for `/v1/me`."""

    token: str
    expires: str


class MemberName(StrictDocument):
    """The name by which the other members know the person."""

    name: str = Field(min_length=1, max_length=100)


class InvitationBody(StrictDocument):
    """A code that a member handed on."""

    code: str = Field(min_length=1, max_length=200)


class AcceptBody(InvitationBody, MemberName):
    """To join a household."""


class InvitationDocument(InvitationBody):
    """One person may join with the code. It is shown once."""

    expires: str


class HouseholdDocument(BaseModel):
    """A household."""

    id: str


class SharesBody(StrictDocument):
    """All that the person shares in a household; an empty list ends it."""

    shares: list[Share] = Field(max_length=100)


class SharedDocument(BaseModel):
    """A share of another member with the person: the attributes as they are now."""

    member: str
    attribute: str
    purpose: str
    until: str | None
    attributes: dict[str, Any]


class HouseholdView(BaseModel):
    """A household as one member sees it. `me` are the person's own memberships."""

    id: str
    me: list[str]
    members: dict[str, str] = Field(description="Names by member.")
    shared_with_me: list[SharedDocument]
    i_share: list[dict[str, Any]]


class MembershipDocument(BaseModel):
    """A household of a person: the names by which its members know the person, and what the person shares there."""

    id: str
    names: list[str]
    shares: list[dict[str, Any]]


Issuer = Annotated[Caller, scoped(Scope.PERSONS)]


class _Me:
    """The person who calls, and their households."""

    def __init__(self, service: ProfileService, caller: ActingPerson) -> None:
        """Raises UnknownSubjectError for somebody who was erased."""
        self.service = service
        self.caller = caller
        self.reader = service.reader(caller)
        owner = self.reader.owner_of_fragment(caller.person)
        if owner is None:
            raise UnknownSubjectError("nothing is stored of this person")
        self.owner = owner
        self.acting = _acting(service, self.reader, owner)._replace(person=caller.person)

    @property
    def households(self) -> Households:
        return required(self.service.rights.households)

    def profile(self, wanted: Wanted) -> Profile:
        """The person's own, as it may be shown; what is revealed is recorded first. Raises UnknownSubjectError where it
        rests on a consent that the person did not give."""
        reader = wanted.reading(self.reader)
        found = [reader.profile_of(self.owner, wanted.reveal)]
        shown = wanted.read(self.service, self.caller, found, reader)
        if not shown:
            raise UnknownSubjectError("the person has not consented to the purpose of this view")
        return shown[0]

    def view(self, known: Household) -> dict[str, Any]:
        return {
            "id": known.id,
            "me": known.mine(self.acting),
            "members": {member: each.body.get("name", "") for member, each in known.members.items()},
            "shared_with_me": list(self._shared(known)),
            "i_share": [each.model_dump(mode="json") for each in known.shares_of(self.acting)],
        }

    def _shared(self, known: Household) -> Iterator[dict[str, Any]]:
        for giver, share in known.shared_with(self.acting, self.households.now_ms()):
            values = self._values(giver, share)
            if values is not None:
                yield {
                    "member": giver.member,
                    **share.model_dump(mode="json", exclude={"to"}),
                    "attributes": values,
                }

    def _values(self, giver: HouseholdEntry, share: Share) -> dict[str, Any] | None:
        """The giver's present values; protected ones are opened if the issuer of the token may open them, and
        recorded."""
        person = self.reader.owner_of_fragment(giver.person)
        if person is None or person.id == self.owner.id:
            return None
        reveal = self.caller.may_reveal
        wanted = Wanted([share.attribute], provenance=False, reveal=reveal, purpose=share.purpose)
        (shown,) = wanted.read(
            self.service, self.caller, [self.reader.profile_of(person, reveal)], self.reader
        )
        return shown.attributes()


def _me(request: Request, service: Service) -> _Me:
    return _Me(service, request.state.caller)


Me = Annotated[_Me, Depends(_me)]


@reading.get("", response_model=Items[MembershipDocument])
def list_memberships(identifier: AskedIdentifier, service: Service, officer: Officer) -> Response:
    """The households of a person, with nothing of the other members. Needs the scope `privacy`."""
    reader = service.reader(officer.model_copy(update={"clearance": HIGHEST}))
    persons = reader.owning(reader.stored_forms(identifier)).persons
    service.require_found(bool(persons))
    if not persons:
        raise UnknownSubjectError("no profile has this identifier")
    acting = _acting(service, reader, persons[0])
    items = []
    for known in required(service.rights.households).of(acting):
        shares = [each.model_dump(mode="json", exclude={"to"}) for each in known.shares_of(acting)]
        names = [str(known.members[member].body.get("name", "")) for member in known.mine(acting)]
        items.append({"id": known.id, "names": names, "shares": shares})
    return answer({"items": items})


def _acting(service: ProfileService, reader: ProfileReader, owner: Person) -> Acting:
    def keys(person: Person | None) -> frozenset[str]:
        return frozenset(service.hashed(each.stored.id) for each in (person.members if person else ()))

    return Acting(owner.id, keys(owner), lambda one, key: key in keys(reader.owner_of_fragment(one)))


@issuing.post("", response_model=PersonTokenDocument, status_code=201)
def issue(body: PersonTokenBody, service: Service, caller: Issuer) -> Response:
    """A token by which a person calls `/v1/me`. Needs the scope `persons`: the caller vouches for who the person is."""
    identifier = given_identifier(body.identifier)
    profile = the_profile(service, caller, identifier, MASKED)
    reader = service.reader(caller)
    (person,) = reader.owning(forms := reader.stored_forms(identifier)).persons
    bound, *_ = *person.carriers(forms), *person.members
    service.note(caller, "person token", profile=service.hashed(profile.id))
    token, end = required(service.rights.tokens).issue(caller, bound.stored.id, body.minutes)
    return answer({"token": token, "expires": time_text(end)}, status=201)


@router.get("", response_model=FoundProfile, responses={304: {"description": "Nothing changed."}})
async def get(me: Me, wanted: WantedParts, if_none_match: IfNoneMatch = None) -> Response:
    """The person's own profile, as the application that issued the token may see it."""
    profile = await run_in_threadpool(me.profile, wanted)
    warnings = await me.service.warnings(me.caller, wanted, [profile])
    return answer(warned(wanted.document(profile), warnings), if_none_match)


@router.get("/consents", response_model=Items[ConsentDocument])
def get_consents(me: Me) -> Response:
    """The person's decisions by purpose, as far as the application may see them."""
    return answer({"items": [each._asdict() for each in consents_of(me.profile(MASKED))]})


@router.put("/consents/{purpose}", response_model=Recorded, status_code=202)
def put_consent(purpose: Purpose, body: ConsentDecision, me: Me) -> Response:
    """Record the person's own decision about a purpose."""
    takes, snapshot = me.service.rights.consents.takes, me.service.following.edition().snapshot
    # Identifiers from events of the token's fragment, so that the decision goes with it when profiles split.
    carriers = me.owner.carriers(me.reader.stored_forms(Identifier.parse(me.acting.person)))
    for name in (name for each in carriers for name in (each.stored.id, *sorted(each.state.names()))):
        identifier = Identifier.parse(me.reader.names.identifier(name))
        is_clear = identifier in me.owner.identifiers and not identifier.value.startswith(HASHED_PREFIX)
        if is_clear and takes(identifier, snapshot):
            return record_decision(me.service, me.caller, identifier, purpose, body)
    raise RefusedRequestError("no identifier of the person is in the clear and taken by the consents' spec")


@router.get("/households", response_model=Items[HouseholdView])
def list_households(me: Me) -> Response:
    """The person's households, with what the others share with the person now, and nothing else of them."""
    return answer({"items": [me.view(each) for each in me.households.of(me.acting)]})


@router.post("/households", response_model=HouseholdDocument, status_code=201)
def found(body: MemberName, me: Me) -> Response:
    """A new household with the person as its member."""
    return answer({"id": me.households.found(me.acting, body.name)}, status=201)


@router.post("/households/{household}/invitations", response_model=InvitationDocument, status_code=201)
def invite(household: str, me: Me) -> Response:
    """A code to hand on: one person may join with it, within a week."""
    code, until_ms = me.households.invite(me.acting, household)
    return answer({"code": code, "expires": time_text(until_ms)}, status=201)


@router.post("/invitations/accept", response_model=HouseholdDocument)
def accept(body: AcceptBody, me: Me) -> Response:
    """Join. 404: the code is used, declined or over."""
    return answer({"id": me.households.accept(me.acting, body.code, body.name)})


@router.post("/invitations/decline", status_code=204)
def decline(body: InvitationBody, me: Me) -> Response:
    """Make the code useless."""
    me.households.decline(me.acting, body.code)
    return Response(status_code=204)


@router.put("/households/{household}/shares", status_code=204)
def put_shares(household: str, body: SharesBody, me: Me) -> Response:
    """Share this, and nothing else from now on: it holds for the next read of each other member."""
    me.households.share(me.acting, household, body.shares)
    return Response(status_code=204)


@router.post("/households/{household}/leave", status_code=204)
def leave(household: str, me: Me) -> Response:
    """End the membership, and all that is shared by and with it."""
    me.households.leave(me.acting, household)
    return Response(status_code=204)
