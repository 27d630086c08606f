"""Bodies of requests, read by the one reader of JSON before FastAPI would read them by another."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

from fastapi.exceptions import HTTPException
from fastapi.params import Form
from fastapi.routing import APIRoute, request_response
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from idgraph.model import json_text
from idgraph.web.refusals import RefusedRequestError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def reading_app(route: APIRoute) -> ASGIApp:
    """The app of a route. If it has a JSON body, what the reader refuses is refused (422, with the place), and a body of
    another content type too (415)."""
    if route.body_field is None or isinstance(route.body_field.field_info, Form):
        return route.app
    handle: Handler = route.get_route_handler()

    async def read(request: Request) -> Response:
        if body := await request.body():
            _check_type(request)
            try:
                # Where FastAPI looks first.
                request._json = json_text.read(body.decode("utf-8-sig"), has_doubles=True)
            except json_text.JsonTextError as error:
                if error.is_json:
                    first = error.problems[0]
                    raise RefusedRequestError(first.message, first.pointer) from None
            except UnicodeDecodeError:
                raise HTTPException(400, "the body is not UTF-8") from None
        return await handle(request)

    return request_response(read)


def _check_type(request: Request) -> None:
    header = Message()
    header["Content-Type"] = request.headers.get("content-type", "")
    kind, _, form = header.get_content_type().partition("/")
    if not (kind == "application" and (form == "json" or form.endswith("+json"))):
        raise HTTPException(415, "the body is no JSON by its header; send Content-Type: application/json")
