"""A profile service on the retail example, with callers of several clearances."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.model.attributes import Catalogue
from idgraph.model.callers import Caller, CallerList, Scope, token_digest
from idgraph.model.errors import MetadataError
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.web.audit import PURPOSE, AuditFile, AuditLog
from idgraph.web.conditional import etag_of
from idgraph.web.server import serving
from profile_service.api.app import create_app
from profile_service.api.following import Following
from profile_service.service import ProfileService
from tests.retail import Pipeline, attribute, raw, records, snapshot
from tests.support.patience import eventually

LEVELS = {"demographics.age": 30, "identity.userId": 60, "activity.search": 40}
CLEARANCES = {"everything": 100, "half": 50, "none": 0}


def caller(name: str, clearance: int, may_reveal: bool = False, scopes: Collection[Scope] = ()) -> Caller:
    return Caller(
        name=name,
        digest=token_digest(name),
        expires=None,
        clearance=clearance,
        may_reveal=may_reveal,
        scopes=frozenset(scopes),
    )


@dataclass
class Metadata:
    """What the metadata service says, for tests that are not about following it."""

    snapshot_now: MetadataSnapshot
    callers_now: list[Caller]
    is_away: bool = False
    version: int = field(default=0)
    stored_models: dict[str, bytes] = field(default_factory=dict)

    def snapshot(self, etag: str | None, wait: float) -> PinnedSnapshot | None:
        ends = time.monotonic() + wait
        while True:
            if self.is_away:
                raise MetadataError("away")
            now = str(self.version)
            if etag != now:
                return PinnedSnapshot(now, self.snapshot_now)
            if time.monotonic() > ends:
                return None
            time.sleep(0.01)

    def catalogue(self, etag: str | None, wait: float) -> tuple[Catalogue, str] | None:
        found = self.snapshot(etag, wait)
        return found and (Catalogue.of(found.snapshot.attributes), found.etag)

    def model(self, digest: str) -> bytes | None:
        if self.is_away:
            raise MetadataError("away")
        return self.stored_models.get(digest)

    def callers(self, etag: str | None, wait: float) -> tuple[CallerList, str] | None:
        ends = time.monotonic() + wait
        while True:
            if self.is_away:
                raise MetadataError("away")
            found = self.caller_list()
            now = etag_of(found.model_dump_json())
            if etag != now:
                return found, now
            if time.monotonic() > ends:
                return None
            time.sleep(0.01)

    def caller_list(self) -> CallerList:
        return CallerList(callers=tuple(self.callers_now))


@dataclass
class Served:
    """The service, what it reads, and a client for each caller."""

    url: str
    pipeline: Pipeline
    metadata: Metadata
    audit: Path
    following: Following
    stack: ExitStack
    service: ProfileService

    def client(self, token: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.stack.enter_context(
            httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)
        )


@pytest.fixture(scope="package", autouse=True)
def callers_are_asked_for_often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("profile_service.api.following.CALLERS_SECONDS", 0.2)
        yield


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem details of an answer with this status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    return found


def identified(user: str, email: str) -> RawRecord:
    """An event of the web shop that shows these two identifiers."""
    event = {
        "timestamp": "2024-03-02T00:00:00.000000+00:00",
        "userId": user,
        "type": "identify",
        "traits": {"email": email},
        "messageId": f"{user} {email}",
    }
    return raw(event, source="segment")


def with_levels(levels: dict[str, int]) -> MetadataSnapshot:
    """The example's snapshot with authorization levels."""
    known = snapshot()
    of_path = {each.path: each for each in known.attributes}
    # As discovered: words without a path are searched in known attributes.
    known_paths = {"activity.platform": "string", "shop.persona": "string", "demographics.age": "integer"}
    for path in {*levels, *known_paths}:
        found = of_path.get(path, attribute(path, known_paths.get(path, "string")))
        of_path[path] = found.model_copy(
            update={"authorization_level": levels.get(path, found.authorization_level)}
        )
    return known.model_copy(update={"attributes": tuple(of_path[path] for path in sorted(of_path))})


@contextmanager
def served_here(pipeline: Pipeline, callers: list[Caller], **parts: Any) -> Iterator[Served]:
    """A profile service on the stores of a pipeline; `parts` are further ones of `ProfileService`."""
    metadata = Metadata(pipeline.snapshot, callers)
    file = pipeline.folder / "audit.jsonl"
    audit = AuditLog(AuditFile(file), pipeline.provider.purpose_key(PURPOSE))
    with ExitStack() as stack:
        following = stack.enter_context(Following(metadata))
        service = ProfileService(pipeline, following, audit, **({"is_local": True} | parts))
        url = stack.enter_context(serving(create_app(service)))
        eventually(following.is_ready)
        yield Served(url, pipeline, metadata, file, following, stack, service)


@contextmanager
def published(served: Served, newer: MetadataSnapshot) -> Iterator[None]:
    """The service follows another snapshot while the block runs."""

    def publish(snapshot: MetadataSnapshot) -> None:
        served.metadata.snapshot_now = snapshot
        served.metadata.version += 1
        eventually(lambda: served.following.edition().etag == str(served.metadata.version))

    kept = served.metadata.snapshot_now
    publish(newer)
    try:
        yield
    finally:
        publish(kept)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("profiles")
    pipeline = Pipeline(folder, snapshot=with_levels(LEVELS))
    pipeline.process(records(400))
    with started(folder, pipeline) as served:
        yield served


@contextmanager
def started(folder: Path, pipeline: Pipeline) -> Iterator[Served]:
    """The service of a pipeline, while the block runs."""
    callers = [caller(name, clearance) for name, clearance in CLEARANCES.items()]
    callers.append(caller("revealing", 100, may_reveal=True))
    with served_here(pipeline, callers) as found:
        yield found


@pytest.fixture
def everything(served: Served) -> httpx.Client:
    return served.client("everything")


@pytest.fixture
def half(served: Served) -> httpx.Client:
    return served.client("half")


@pytest.fixture
def none(served: Served) -> httpx.Client:
    return served.client("none")
