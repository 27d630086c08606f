"""Contact search: customers by their own statements, with typing errors, the most similar first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from idgraph.model.documents import StrictDocument
from idgraph.model.errors import QueryError
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import MOST_EDITS, All, AnyOf, Condition, FullText, Query, Term
from idgraph.web.refusals import RefusedRequestError
from profile_service.api.dependencies import ActingCaller, Service
from profile_service.api.documents import Items, ProfileDocument, answer
from profile_service.reader import Profile, ProfileReader
from profile_service.request_bodies import MOST_FIELDS
from profile_service.wanted import Wanted

router = APIRouter(prefix="/v1/contacts", tags=["search"])

FIELDS = ("name", "phone", "email", "postcode")
IDENTIFIED_BY = ("phone", "email")
"""Fields that are types of identifiers too."""
CANDIDATES = 50
"""Profiles that are compared, of all fields together and of each."""
LONGEST = 300
"""Characters of a value that are compared."""
_ONE_EDIT, _TWO_EDITS = 3, 6
"""Characters of a word from which so many typing errors are allowed."""

Paths = Mapping[str, Sequence[str]]
"""The attributes of each field."""


Text = Annotated[str | None, Field(default=None, max_length=300)]


class ContactBody(StrictDocument):
    """A customer's own statements; at least one of the four."""

    name: Text
    phone: Text
    email: Text
    postcode: Text
    fields_: list[str] | None = Field(
        default=None, alias="fields", max_length=MOST_FIELDS, description="Attribute paths that are shown."
    )
    limit: int = Field(default=10, ge=1, le=50)


class ContactDocument(BaseModel):
    """A customer who may be meant."""

    score: float = Field(description="From 0 to 1, the share of what was asked that is alike.")
    matched: list[str] = Field(description="The fields by which the profile was found.")
    profile: ProfileDocument


@router.post("", response_model=Items[ContactDocument])
def post(body: ContactBody, service: Service, caller: ActingCaller) -> Response:
    """Customers by name, phone, e-mail or postcode, with typing errors, the most similar first. A protected value is
    found as a whole. `contact_attributes` of `[profiles]` names the attributes."""
    wanted = Wanted(body.fields_, provenance=False, reveal=False, purpose=None)
    asked = {field: value for field in FIELDS if (value := getattr(body, field) or "").strip()}
    if not asked:
        raise QueryError(f"give one of {', '.join(FIELDS)}")
    if not (places := service.contact_paths):
        raise RefusedRequestError(
            "no attribute is a contact here: name them in contact_attributes of [profiles], then start again"
        )
    reader = service.reader(caller)
    found = find_contacts(reader, asked, places, body.limit)
    items = []
    for each in found:
        document = wanted.document(wanted.of(each.profile))
        items.append({"score": each.score, "matched": list(each.matched), "profile": document})
    service.require_found(bool(items))
    return answer({"items": items})


class Contact(NamedTuple):
    """A customer who may be meant. `score` is from 0 to 1; `matched` are the fields by which the profile was found."""

    score: float
    matched: tuple[str, ...]
    profile: Profile


def find_contacts(
    reader: ProfileReader, asked: Mapping[str, str], places: Paths, limit: int
) -> list[Contact]:
    """The best of those that match any field, as far as the reader sees the attributes. A protected attribute is compared as a
    whole, by its blind index; one that is not searchable is left out."""
    try:
        return _found(reader, asked, places, MOST_EDITS)[:limit]
    except QueryError:
        # This index finds no mistyped words.
        return _found(reader, asked, places, 0)[:limit]


def _found(reader: ProfileReader, asked: Mapping[str, str], places: Paths, most_edits: int) -> list[Contact]:
    conditions = {
        field: _condition(reader, places.get(field, ()), value, most_edits) for field, value in asked.items()
    }
    queries = [(tuple(asked), All(tuple(conditions.values()))), *(((f,), c) for f, c in conditions.items())]
    answers = [(each, reader.search(Query((asks,)), CANDIDATES).profiles) for each, asks in queries]
    named = asked.keys() & set(IDENTIFIED_BY)
    answers += [((each,), _identified(reader, each, asked[each])) for each in named]
    profiles: dict[str, Profile] = {}
    matched: dict[str, set[str]] = {}
    for fields, profile in ((each, profile) for each, found in answers for profile in found):
        profiles[profile.id] = profile
        matched.setdefault(profile.id, set()).update(fields)
    found = [
        Contact(
            round(
                sum(_similarity(profiles[name], places.get(f, ()), asked[f]) for f in fields) / len(asked), 3
            ),
            tuple(f for f in FIELDS if f in fields),
            profiles[name],
        )
        for name, fields in matched.items()
    ]
    return sorted(found, key=lambda each: (-each.score, each.profile.id))


def _identified(reader: ProfileReader, kind: str, value: str) -> list[Profile]:
    found = reader.lookup(Identifier(kind, value))
    return [] if reader.shared else found


def _condition(reader: ProfileReader, paths: Sequence[str], value: str, most_edits: int) -> Condition:
    """The whole value in one attribute, or each of its words, maybe mistyped, in one of those that are not protected."""
    policies = {path: reader.policy(path) for path in paths if reader.sees(path)}
    whole = [
        Term(path, value) for path, each in policies.items() if each.is_searchable or not each.is_protected
    ]
    plain = [path for path, each in policies.items() if not each.is_protected]
    words = value.split()
    allowed = {word: (len(word) >= _ONE_EDIT) + (len(word) >= _TWO_EDITS) for word in words}
    mistyped = tuple(
        AnyOf(tuple(FullText(word, path, edits=min(most_edits, allowed[word])) for path in plain))
        for word in words
    )
    return AnyOf((*whole, *((All(mistyped),) if plain and words else ())))


def _similarity(profile: Profile, paths: Sequence[str], value: str) -> float:
    """The similarity to the visible values; 1 for a hidden one that was found, as it was compared as a
    whole."""
    visible = [str(text) for text in _texts(profile, paths)]
    return max((_ratio(value, text) for text in [*visible, " ".join(visible)] if text), default=1.0)


def _texts(profile: Profile, paths: Sequence[str]) -> Iterator[Any]:
    for path in paths:
        value = profile.get(path)
        yield from value if isinstance(value, list) else [value] if isinstance(value, str | int) else []


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one.strip().casefold(), other[:LONGEST].strip().casefold()).ratio()
