"""Models of derived attributes: bytes by their digest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from idgraph.model.records import ModelRecord
from idgraph.web.conditional import IfNoneMatch, created, is_listed
from idgraph.web.cursors import ListPage
from idgraph.web.refusals import UnknownSubjectError
from metadata_service.api.service import Actor, Paging, Reason, Service
from metadata_service.behaviour import DERIVED_ATTRIBUTES
from metadata_service.models import get_model, list_models, model_content, save_model

router = APIRouter(prefix="/v1/models", tags=["models"])

Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
MEDIA_TYPE = "application/octet-stream"


@router.post("", response_model=ModelRecord, responses=created(ModelRecord))
def add(
    service: Service,
    actor: Actor,
    response: Response,
    content: Annotated[bytes, Body(media_type=MEDIA_TYPE)],
    name: Annotated[str, Query(max_length=200, description="For people; it need not be unique.")] = "",
    reason: Reason = "",
) -> ModelRecord:
    """Keep a model in the ONNX format. It is never altered or deleted; the same again is answered with 200."""
    from transforms.behaviour.models import check_model, interface_of

    digest, interface = check_model(content), interface_of(content)
    with service.database.write(actor, reason) as edit:
        is_new = save_model(edit, digest, content, interface, name)
        found = get_model(edit.session, digest, DERIVED_ATTRIBUTES.active(edit.session))
    response.status_code = 201 if is_new else 200
    return found


@router.get("")
def list_(service: Service, paging: Paging) -> ListPage[ModelRecord]:
    """All models, by digest."""
    with service.database.read() as session:
        return list_models(session, paging, DERIVED_ATTRIBUTES.active(session))


@router.get("/{digest}", response_class=Response, responses={200: {"content": {MEDIA_TYPE: {}}}})
def get(digest: Digest, service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """The bytes of a model."""
    etag = f'"{digest}"'
    headers = {"ETag": etag, "Cache-Control": "private, max-age=31536000, immutable"}
    if is_listed(etag, if_none_match):
        return Response(status_code=304, headers=headers)
    with service.database.read() as session:
        try:
            content = model_content(session, digest)
        except KeyError:
            raise UnknownSubjectError(f"there is no model {digest}") from None
    return Response(content, headers=headers, media_type=MEDIA_TYPE)
