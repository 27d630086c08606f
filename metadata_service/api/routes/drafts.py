"""Mapping specs drafted from sample events."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from idgraph.model.documents import StrictDocument
from idgraph.model.specs import NAME_PATTERN
from metadata_service.api.service import Service
from metadata_service.attributes.catalogue import known_types
from metadata_service.drafting.draft import SpecDraft, draft_spec
from metadata_service.specs.catalogue import active_specs
from metadata_service.specs.rules import check_spec

router = APIRouter(prefix="/v1/specs/generate", tags=["specs"])


class SampleEvents(StrictDocument):
    """Payloads of events of one source, and what the spec is to be called."""

    name: str = Field(pattern=NAME_PATTERN)
    source: str = Field(min_length=1, max_length=200)
    event_type: str = Field(default="*", min_length=1, max_length=200)
    events: list[dict[str, Any]] = Field(min_length=1, max_length=1000)


@router.post("")
def generate(sample: SampleEvents, service: Service) -> SpecDraft:
    """A spec that maps events like these, each line with its reason and how sure it is. Nothing is stored, and no value of
    the sample is in the answer."""
    with service.database.read() as session:
        known = known_types(session)
        places = [place for spec in active_specs(session) for place in spec.identifiers]
    namespaces = {place.type: place.path for place in places}
    draft = draft_spec(sample.name, sample.source, sample.event_type, sample.events, known, namespaces)
    check_spec(draft.definition, service.compile_spec)
    return draft
