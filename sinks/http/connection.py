"""HTTP as the metadata client needs it: errors of the tree out of statuses, models out of bodies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from idgraph.model.errors import (
    ApprovalNeededError,
    MetadataError,
    NotFoundError,
    QueryError,
    RefusedError,
    SpecError,
    UnauthorizedError,
    first_few,
)
from idgraph.model.transport import client_options

PAGE = 1000
FIRST_BYTES = 4096
REFUSED_SPEC = "/v1/specs"

_REFUSALS = frozenset(
    {
        httpx.codes.BAD_REQUEST,
        httpx.codes.CONFLICT,
        httpx.codes.PRECONDITION_FAILED,
        httpx.codes.REQUEST_ENTITY_TOO_LARGE,
        httpx.codes.UNPROCESSABLE_ENTITY,
    }
)

_REPORTED = frozenset({httpx.codes.NOT_MODIFIED, httpx.codes.NOT_FOUND})

Answer = TypeVar("Answer", bound=BaseModel)


class MetadataConnection:
    """A pool of connections to one metadata service. Safe to share between threads.

    Never pickled, since it holds a token; no message holds the token either.
    """

    def __init__(
        self,
        url: str,
        token: str,
        timeout: float,
        ca_file: Path | None,
        renewed: Callable[[], str] | None = None,
    ) -> None:
        """`renewed` gives the token that is valid now: it is asked when the service refuses the former one."""
        self.timeout = timeout
        self._renewed = renewed
        self._lock = threading.Lock()
        self._running = 0
        self._closed = threading.Event()
        try:
            parsed = httpx.URL(url)
            if parsed.scheme not in ("http", "https") or not parsed.host:
                raise httpx.InvalidURL("not http://HOST")
            self._url = str(parsed.copy_with(userinfo=b"")).rstrip("/")
            self._client = httpx.Client(
                base_url=parsed,
                headers={"Authorization": f"Bearer {token}"},
                timeout=timeout,
                **client_options(url, ca_file),
            )
        except (httpx.InvalidURL, UnicodeEncodeError):
            # Without the cause: its text holds the URL, or the token.
            raise MetadataError("metadata service: its URL or its token cannot be used") from None

    def call(self, method: str, path: str, **request: Any) -> httpx.Response:
        """One request; gives 2xx, 304 and 404 answers and raises `MetadataError` for the others;
        `ApprovalNeededError` for an edit that waits for a second person (202)."""
        place = f"{method} {self._url}{path}"
        try:
            with self._open():
                answer = self._client.request(method, path, **request)
                if answer.status_code == httpx.codes.UNAUTHORIZED and self._renew():
                    answer = self._client.request(method, path, **request)
        except httpx.ConnectError as error:
            raise MetadataError(
                f"{place}: no answer ({type(error).__name__}); is the service up? `idgraph serve metadata` starts it"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise MetadataError(f"{place}: no answer ({type(error).__name__})") from error
        if answer.status_code == httpx.codes.ACCEPTED:
            raise _kept(answer)
        if answer.is_success or answer.status_code in _REPORTED:
            return answer
        raise _error(place, path, answer)

    def _renew(self) -> bool:
        """Whether there is another token than the one that was refused."""
        if self._renewed is None:
            return False
        header = f"Bearer {self._renewed()}"
        is_other = header != self._client.headers["Authorization"]
        self._client.headers["Authorization"] = header
        return is_other

    def get_model(self, kind: type[Answer], method: str, path: str, **request: Any) -> Answer:
        """A request whose answer is this model; 404 is an error."""
        model = self.find_model(kind, method, path, **request)
        if model is None:
            raise NotFoundError(f"{method} {self._url}{path}: HTTP 404, there is no such thing")
        return model

    def find_model(self, kind: type[Answer], method: str, path: str, **request: Any) -> Answer | None:
        """A request whose answer is this model, or None for 404."""
        answer = self.call(method, path, **request)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return self.read(kind, answer)

    def read(self, kind: type[Answer], answer: httpx.Response) -> Answer:
        """The body as a model; raises MetadataError if it is none."""
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError as error:
            raise MetadataError(
                f"{self._url}: HTTP {answer.status_code}, but the body is no {kind.__name__}"
            ) from error

    def pages(self, kind: type[Answer], path: str, params: Mapping[str, str | int]) -> Iterator[Answer]:
        """All items of a list, page by page."""
        cursor: dict[str, str] = {}
        while True:
            answer = self.call("GET", path, params={"limit": PAGE, **params, **cursor})
            try:
                page = answer.json()
                items = [kind.model_validate(item) for item in page["items"]]
                following = page["next"]
            except (ValueError, KeyError, TypeError) as error:
                raise MetadataError(
                    f"GET {self._url}{path}: HTTP {answer.status_code}, but the body is no list"
                ) from error
            yield from items
            if following is None:
                return
            cursor = {"cursor": following}

    def close(self) -> None:
        """No request begins any more. The last one that runs closes the pool: a connection that it was about to open
        would belong to nobody."""
        with self._lock:
            self._closed.set()
            is_last = self._running == 0
        if is_last:
            self._client.close()

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed.is_set():
                raise MetadataError(f"{self._url}: the connection was closed")
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                is_last = self._closed.is_set() and self._running == 0
            if is_last:
                self._client.close()

    def __reduce__(self) -> str:
        raise TypeError("a metadata connection holds a token and is not pickled")


def ask_once(url: str, timeout: float, token: str = "") -> tuple[int, bytes] | None:
    """Status and first bytes of the answer to one GET, for who has no client; None without an answer. Raises ValueError for one
    that is not HTTP."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.stream("GET", url, headers=headers, timeout=timeout, **client_options(url)) as answer:
            return answer.status_code, next(answer.iter_bytes(FIRST_BYTES), b"")
    except (httpx.RemoteProtocolError, httpx.DecodingError, httpx.InvalidURL) as error:
        raise ValueError(type(error).__name__) from None
    except httpx.TransportError:
        return None


def quoted(part: str) -> str:
    """One part of a URL's path, slashes and dots within it escaped. Raises QueryError for an empty one, by which the URL
    would be that of a whole list."""
    if not part:
        raise QueryError("the name is empty")
    text = quote(part, safe="")
    return text.replace(".", "%2E") if not text.strip(".") else text


def _kept(answer: httpx.Response) -> MetadataError:
    try:
        change = answer.json()
        number, subject = int(change["id"]), change["subject"] or change["kind"].replace("_", " ")
        opened = ", ".join(first_few(change["weakens"]))
    except (ValueError, KeyError, TypeError):
        return MetadataError(f"HTTP {answer.status_code}, but the body is no policy change")
    return ApprovalNeededError(
        f"{subject}: weakens protection ({opened}), so it waits for a second person: "
        f"`idgraph attributes approve {number}`",
        number,
    )


def _error(place: str, path: str, answer: httpx.Response) -> MetadataError | SpecError:
    try:
        problem = json.loads(answer.content)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    detail = problem.get("detail") or answer.reason_phrase
    message = f"{place}: HTTP {answer.status_code}, {detail}"
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return UnauthorizedError(message)
    pointer = problem.get("pointer")
    found = SpecError(str(detail), pointer or "", problem.get("hint"))
    if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY and path.startswith(REFUSED_SPEC):
        return found
    text = f"{message} (at {pointer})" if pointer else message
    if answer.status_code not in _REFUSALS:
        return MetadataError(text)
    refused = RefusedError(text)
    refused.problem = found if answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY else None
    return refused
