"""The route of the contact search."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from idgraph.model.documents import StrictDocument
from idgraph.model.errors import QueryError
from idgraph.web.refusals import RefusedRequestError
from profile_service.api.contacts import FIELDS, find_contacts
from profile_service.api.documents import Items, ProfileDocument, answer
from profile_service.api.service import MOST_FIELDS, ActingCaller, Service, Wanted

router = APIRouter(prefix="/v1/contacts", tags=["search"])

Text = Annotated[str | None, Field(default=None, max_length=300)]


class ContactBody(StrictDocument):
    """What a customer says of themselves; at least one of the four."""

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
    """Customers by name, phone, e-mail or postcode, with typing errors, the most similar first. A protected value is found as a whole. Which attributes
    these are says `contact_attributes` of `[profiles]`."""
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
