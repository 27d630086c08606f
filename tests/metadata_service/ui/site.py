"""A metadata service with the retail example's catalogue, persons of every role before its pages, and, where it is asked for, a
profile service that follows it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from fastapi import FastAPI

from idgraph.app.dead_letter_desk import LocalDeadLetterDesk
from idgraph.app.demo.example import Example
from idgraph.model.events import RawRecord
from idgraph.model.flows import Flows
from idgraph.model.identifiers import Identifier
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.sources import SourceConfig
from idgraph.web.audit import PURPOSE, AuditFile, AuditLog
from idgraph.web.server import serving
from ingestion.stages.orphaned_keys import OrphanedKeys
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.documents.reading import read_attributes, read_definition
from metadata_service.storage.tokens import CALLING, Role
from metadata_service.ui.page import ProfileSource
from profile_service.api.app import create_app as create_profile_app
from profile_service.api.following import Following
from profile_service.api.households import Households
from profile_service.api.rights import ConsentInput, Rights
from profile_service.service import ProfileService
from sinks.document_folder import DocumentFolder
from sinks.http.metadata import MetadataClient
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.sqlite.households import SqliteHouseholdLog
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.scripted_jobs import ScriptedJobs
from tests.retail import Pipeline, raw, records
from tests.support.patience import eventually

EVENT: dict[str, Any] = {
    "messageId": "m-1",
    "timestamp": "2024-03-15T23:35:10Z",
    "userId": "0003474",
    "anonymousId": "609db510",
    "type": "track",
    "event": "Purchase",
    "platform": "web",
    "traits": {"email": " Victoria@example.com "},
    "properties": {"cartId": "c-1", "cartTotal": 1607.97},
}
"""Of the source segment."""


def two_fragments() -> list[dict[str, Any]]:
    """Events of one person before and after signing in: the later platform wins over that of the other fragment."""
    before = EVENT | {"messageId": "m-lost-1", "anonymousId": "lost-1", "platform": "ios", "traits": {}}
    after = before | {
        "messageId": "m-lost-2",
        "userId": "7301",
        "platform": "android",
        "timestamp": "2024-03-16T02:00:00Z",
        "traits": {"email": "lost@example.com"},
    }
    return [{name: value for name, value in before.items() if name != "userId"}, after]


class Site(NamedTuple):
    """A running service, its tokens by role, and what makes a browser that is not signed in."""

    url: str
    app: FastAPI
    tokens: dict[Role, str]
    browser: Callable[[], httpx.Client]

    def signed_in(self, role: Role = Role.ADMIN) -> Person:
        """A person who signed in with the token of a role."""
        client = self.browser()
        answer = client.post("/ui/sign-in", data={"token": self.tokens[role]})
        assert answer.status_code == 200, answer.text
        return Person(client)

    def api(self, role: Role = Role.ADMIN) -> httpx.Client:
        """A script with the token of a role."""
        client = self.browser()
        client.headers["Authorization"] = f"Bearer {self.tokens[role]}"
        return client


class Person:
    """A browser with a session, which sends the forms that it was given."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def get(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code)
        return answer.text

    def post(self, path: str, fields: dict[str, str], status: int = 200) -> str:
        answer = self.client.post(path, data=fields | {"csrf": self.csrf()})
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/ui/profiles"))
        assert found
        return found[1]


def filled(stack: ExitStack, app: FastAPI, url: str) -> Site:
    """The retail example's catalogue behind a running service."""

    def browser() -> httpx.Client:
        return stack.enter_context(
            httpx.Client(base_url=url, follow_redirects=True, timeout=60, trust_env=False, verify=False)
        )

    database = app.state.service.database
    tokens = {
        role: create_token(database, f"the {role}", role, clearance=50 if role in CALLING else 0)
        for role in Role
    }
    site = Site(url, app, tokens, browser)
    example, admin = Example("retail"), site.api()
    attributes = example.attributes()
    assert attributes is not None
    for definition, _, _ in read_attributes(attributes):
        body = definition.model_dump(mode="json", exclude_unset=True)
        admin.put(f"/v1/attributes/{definition.path}", json=body).raise_for_status()
    for file in example.specs():
        body = json.loads(Path(file).read_text())
        admin.put(f"/v1/specs/{read_definition(file).name}?reason=first", json=body).raise_for_status()
    return site


class Whole(NamedTuple):
    """Both services, and the stages, which process events by what the metadata service says."""

    site: Site
    pipeline: Pipeline
    client: MetadataClient
    jobs: ScriptedJobs
    consents: list[bytes]
    """The events that were published."""
    letters: SqliteDeadLetters
    documents: DocumentFolder
    """The profile service's own, such as the ledgers of triggers."""

    def process(self, given: Sequence[RawRecord]) -> None:
        """Map, protect, commit and project by the newest snapshot, and report what nobody declared."""
        answer = self.client.snapshot()
        assert answer is not None
        self.pipeline.snapshot = answer.snapshot
        for output in self.pipeline.map_stage().run(given):
            found = [
                SchemaChange(
                    path=path,
                    data_type=kind,
                    source=source,
                    first_event=at,
                    proposal=output.proposals.get((path, kind)),
                )
                for (path, kind), (source, at) in output.changes.items()
            ]
            self.client.send(found)
        self.pipeline.process(given)


@contextmanager
def whole_site(folder: Path) -> Iterator[Whole]:
    """On real stores in memory, with the first events of the example."""
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}", sandboxes=folder / "sandboxes"))
    with ExitStack() as stack:
        url = stack.enter_context(serving(app))
        site = filled(stack, app, url)
        client = stack.enter_context(MetadataClient(url, site.tokens[Role.PIPELINE]))
        pipeline = Pipeline(folder)
        own = stack.enter_context(MetadataClient(url, site.tokens[Role.SERVICE]))
        following = stack.enter_context(Following(own))
        audit = AuditLog(AuditFile(folder / "audit.jsonl"), pipeline.provider.purpose_key(PURPOSE))
        jobs = ScriptedJobs(pipeline, lambda: following.edition().snapshot)
        households = stack.enter_context(closing(SqliteHouseholdLog(folder / "households.db")))
        published: list[bytes] = []

        def consents(lines: Sequence[bytes]) -> int:
            published.extend(lines)
            return len(lines)

        letters = stack.enter_context(closing(SqliteDeadLetters(folder / "dead-letters.db")))

        def newest(source: SourceConfig, most: int) -> list[RawRecord]:
            return [raw(EVENT, source="segment")][:most] if source.name == "segment" else []

        drop = OrphanedKeys(pipeline.store, pipeline.data_keys, letters).drop_dead_letters
        desk = LocalDeadLetterDesk(letters, pipeline.sealer, pipeline.sources, pipeline.formats, newest, drop)
        service = ProfileService(
            pipeline,
            following,
            audit,
            is_local=True,
            rights=Rights(
                consents=ConsentInput("segment", "track", consents),
                jobs=jobs,
                households=Households(
                    households, lambda name: str(pipeline.blind_index.identifier(Identifier.parse(name)))
                ),
                dead_letters=desk,
                flows=Flows(DocumentFolder(folder)),
            ),
            project=lambda _: pipeline.project().is_whole,
        )
        service.documents = documents = DocumentFolder(folder)
        profiles = stack.enter_context(serving(create_profile_app(service)))
        app.state.pages.state.profile_source = ProfileSource(profiles)
        whole = Whole(site, pipeline, client, jobs, published, letters, documents)
        whole.process([*records(600), raw(EVENT, source="segment")])
        eventually(following.is_ready)
        yield whole
