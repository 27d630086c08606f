"""Views and segments: the same routes for both."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from idgraph.model import canonical
from idgraph.model.records import CheckRecord, SegmentVersionRecord, ViewVersionRecord
from idgraph.model.specs import NAME_PATTERN
from idgraph.model.views import SegmentDocument, ViewDocument
from idgraph.web.conditional import Check, IfNoneMatch, Precondition, created, json_answer
from idgraph.web.cursors import ListPage
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.service import Actor, MetadataService, Paging, Reason, Service
from metadata_service.definitions import SEGMENTS, VIEWS, Definitions, Stated, Stored


class _Warned(BaseModel):
    warnings: list[str] | None = Field(
        default=None, description="What a search for it would warn of; absent without any."
    )


class SavedView(_Warned, ViewDocument):
    """A view that was saved."""


class SavedSegment(_Warned, SegmentDocument):
    """A segment that was saved."""


Name = Annotated[str, Path(pattern=NAME_PATTERN)]


def _routes(
    definitions: Definitions[Stated, Stored],
    documents: type[BaseModel],
    records: type[BaseModel],
    saved: type[BaseModel],
) -> APIRouter:
    router = APIRouter(prefix=f"/v1/{definitions.kind}s", tags=[f"{definitions.kind}s"])

    @router.get("", response_model=documents)
    def list_(
        service: Service,
        paging: Paging,
        q: Annotated[str, Query(max_length=200, description="Words in the name.")] = "",
        sort: Literal["name", "-name"] = "name",
    ) -> Any:
        """The latest versions, by name."""
        with service.database.read() as session:
            return definitions.list(session, paging, q, sort == "-name")

    @router.get("/{name}", response_model=definitions.stored)
    def get(name: Name, service: Service, if_none_match: IfNoneMatch = None) -> Response:
        """The latest version."""
        with service.database.read() as session:
            document = definitions.get(session, name)
        return json_answer(document.model_dump_json(), if_none_match)

    @router.get("/{name}/versions", response_model=records)
    def list_versions(name: Name, service: Service, paging: Paging) -> Any:
        """All versions with who, when and why; the newest first."""
        with service.database.read() as session:
            return definitions.versions(session, name, paging)

    def put(
        name: Name,
        definition: Stated,
        service: Service,
        actor: Actor,
        precondition: Precondition,
        reason: Reason = "",
    ) -> Response:
        """Store a new version, in force at once; with status `retired`, take it out of use. The same again makes none."""
        if definition.name != name:
            raise RefusedRequestError("the name is not the one in the URL", "/name")
        return put_definition(definitions, definition, service, actor, precondition, reason)

    def check(definition: Stated, service: Service) -> CheckRecord:
        """Would this definition be accepted? Nothing is stored. Warns as the search for it does."""
        with service.database.read() as session:
            first = definitions.checked(session, definition)
            return CheckRecord(warnings=definitions.warnings(session, first))

    check.__annotations__["definition"] = definitions.stated
    router.post("/check")(check)
    put.__annotations__["definition"] = definitions.stated
    router.put("/{name}", response_model=saved, responses=created(saved))(put)
    return router


def put_definition(
    definitions: Definitions[Stated, Stored],
    definition: Stated,
    service: MetadataService,
    actor: str,
    precondition: Check,
    reason: str,
) -> Response:
    """What `PUT` does with a definition of its name: the document, with the warnings that `check` gives, if there are any."""
    with service.database.read() as session:
        first = definitions.checked(session, definition)
        warnings = definitions.warnings(session, first)
    with service.database.write(actor, reason) as edit:
        document, is_new = definitions.save(edit, first, precondition)
    answer = json_answer(document.model_dump_json(), status=201 if is_new else 200)
    if warnings:
        # The ETag is that of the document, as `GET` has it.
        answer.body = canonical.encode(document.model_dump(mode="json") | {"warnings": warnings})
        answer.headers["Content-Length"] = str(len(answer.body))
    return answer


ROUTERS = (
    _routes(VIEWS, ListPage[ViewDocument], ListPage[ViewVersionRecord], SavedView),
    _routes(SEGMENTS, ListPage[SegmentDocument], ListPage[SegmentVersionRecord], SavedSegment),
)
