"""A profile service with every part, and for each of its operations a call that is answered with 2xx."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx

from idgraph.app.dead_letter_desk import LocalDeadLetterDesk
from idgraph.app.entrance import project_now
from idgraph.app.observation.flow_report import FlowReporter
from idgraph.app.settings.document import load
from idgraph.model import queries
from idgraph.model.callers import Caller, Scope
from idgraph.model.flows import Flows, FlowState
from idgraph.model.identifiers import Identifier
from idgraph.model.jobs import JobState
from idgraph.model.queries import Query, Term
from idgraph.model.triggers import TriggerDocument, When
from idgraph.model.views import SegmentDocument, ViewDocument
from ingestion.stages.orphaned_keys import OrphanedKeys
from profile_service.api.households import Households
from profile_service.api.person_tokens import PersonTokens
from profile_service.api.rights import ConsentInput, Rights
from sinks.document_folder import DocumentFolder
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.sqlite.households import SqliteHouseholdLog
from tests.metadata_service.ui.scripted_jobs import ScriptedJobs
from tests.profile_service.api.conftest import Served, caller, served_here
from tests.profile_service.test_consents import SPEC
from tests.retail import Pipeline, order, raw, records, snapshot

ALL = "every scope"
"""The token of the caller who may do everything, and who started the jobs."""
USER, OTHER = "user_id:4493", "user_id:480"

PINS = [{"pair": [USER, OTHER], "decision": "never"}]
WHY = {"reason": "a test"}
WORDS = {"q": "activity.platform=ios"}
SPEC_BODY = SPEC.model_dump(mode="json", exclude={"version", "created"}, exclude_defaults=True)

CALLS: dict[str, tuple[str, Any]] = {
    "GET /health/live": ("", None),
    "GET /health/ready": ("", None),
    "GET /v1/profiles/{identifier}": ("", {"view": "marketing", "provenance": True, "wait_for": "file:x"}),
    "POST /v1/profiles/lookup": ("", {"identifiers": [USER, "user_id:nobody"]}),
    "GET /v1/profiles/{identifier}/explain": ("", {"with": USER}),
    "GET /v1/profiles/{identifier}/history": ("", None),
    "GET /v1/profiles/{identifier}/timeline": ("", None),
    "GET /v1/profiles/{identifier}/timeline/spans": ("", None),
    "GET /v1/profiles/{identifier}/consents": ("", None),
    "PUT /v1/profiles/{identifier}/consents/{purpose}": ("", {"status": "given", "source": "web"}),
    "GET /v1/profiles/{identifier}/households": ("", None),
    "GET /v1/audit": ("", {"profile": USER}),
    "POST /v1/audit/verify": ("", None),
    "GET /v1/changes": ("", {"segment": "ios"}),
    "POST /v1/contacts": ("", {"name": "Charles"}),
    "GET /v1/dead-letters": ("", {"source": "orders"}),
    "GET /v1/dead-letters/{dead_letter}": ("", None),
    "POST /v1/dead-letters/replay/preview": ("", {"filter": {}}),
    "POST /v1/dead-letters/replay": ("", {"filter": {}} | WHY),
    "POST /v1/dead-letters/drop": ("", {"ids": ["none"]} | WHY),
    "GET /v1/flows": ("", None),
    "GET /v1/flows/{name}": ("main", None),
    "POST /v1/flows/{name}/pause": ("main", WHY),
    "POST /v1/flows/{name}/resume": ("main", WHY),
    "GET /v1/sources": ("", None),
    "GET /v1/sources/{source}/events": ("", {"limit": 1}),
    "POST /v1/person-tokens": ("", {"identifier": USER}),
    "GET /v1/me": ("", None),
    "GET /v1/me/consents": ("", None),
    "PUT /v1/me/consents/{purpose}": ("", {"status": "given", "source": "web"}),
    "GET /v1/me/households": ("", None),
    "POST /v1/me/households": ("", {"name": "Ann"}),
    "POST /v1/me/households/{household}/invitations": ("", None),
    "POST /v1/me/invitations/accept": ("", {"code": "accepted", "name": "Ann"}),
    "POST /v1/me/invitations/decline": ("", {"code": "declined"}),
    "PUT /v1/me/households/{household}/shares": ("", {"shares": []}),
    "POST /v1/me/households/{household}/leave": ("left", None),
    "POST /v1/identity-rules/previews": ("", {"rules": {}, "sample": 5}),
    "GET /v1/identity-rules/previews/{job}": ("rules", None),
    "POST /v1/specs/previews": ("", {"definition": SPEC_BODY}),
    "POST /v1/derived-attributes/preview": (
        "",
        {"definition": {"name": "last", "path": "behaviour.last", "expression": "orders.count"}},
    ),
    "GET /v1/specs/previews/{job}": ("spec", None),
    "POST /v1/links/preview": ("", {"pins": PINS}),
    "POST /v1/links": ("", {"pins": PINS} | WHY),
    "GET /v1/links/violations": ("", None),
    "POST /v1/links/suggestions": ("", {"attributes": ["identity.email", "demographics.age"]}),
    "GET /v1/links/suggestions/{job}": ("suggestions", None),
    "GET /v1/jobs": ("", {"who": ALL}),
    "POST /v1/jobs": ("", {"kind": "export"} | WHY),
    "GET /v1/jobs/{job}": ("export", None),
    "POST /v1/jobs/{job}/cancel": ("running", WHY),
    "POST /v1/jobs/{job}/resume": ("cancelled", WHY),
    "GET /v1/jobs/{job}/download": ("export", None),
    "POST /v1/access-requests": ("", {"identifier": USER} | WHY),
    "GET /v1/access-requests/{job}": ("access", None),
    "GET /v1/access-requests/{job}/download": ("access", None),
    "POST /v1/erasures/preview": ("", {"identifiers": [USER]}),
    "POST /v1/erasures": ("", {"identifiers": [USER]} | WHY),
    "GET /v1/erasures/{job}": ("erasure", None),
    "GET /v1/search": ("", {"sort": "-demographics.age", "limit": 5} | WORDS),
    "POST /v1/search": ("", {"reveal": True, "purpose": "a test"} | WORDS),
    "GET /v1/search/count": ("", WORDS),
    "POST /v1/search/count": ("", WORDS),
    "GET /v1/search/facets": ("", {"path": ["activity.platform"]} | WORDS),
    "POST /v1/search/facets": ("", {"paths": ["activity.platform"]} | WORDS),
    "GET /v1/segments": ("", None),
    "GET /v1/segments/{name}": ("ios", None),
    "GET /v1/segments/{name}/count": ("ios", None),
    "GET /v1/segments/{name}/members": ("ios", {"limit": 5}),
    "POST /v1/segments/member-of": ("", {"identifiers": [USER]}),
    "GET /v1/triggers": ("", None),
    "GET /v1/triggers/{name}/ledger": ("welcome", None),
    "GET /v1/views": ("", None),
    "GET /v1/waiting": ("", None),
}
"""By operation: the flow, segment, job or household in its path, and its query or body. In this order each is answered with 2xx."""


class EveryPart(NamedTuple):
    """The service, the token of a person, and what `CALLS` name."""

    served: Served
    person: str
    known: dict[str, str]

    def path(self, operation: str) -> dict[str, str]:
        """The values in its path."""
        about = CALLS[operation][0]
        named = self.known.get(about, "")
        household = named if about == "left" else self.known["household"]
        return self.known | {"name": about, "job": named, "household": household}

    def content(self, operation: str) -> Any:
        """Query or body."""
        content = CALLS[operation][1]
        code = content and self.known.get(content.get("code"))
        return {**content, "code": code} if code else content

    def call(self, client: httpx.Client, operation: str) -> httpx.Response:
        method, template = operation.split()
        content = self.content(operation)
        stated = {"params" if method == "GET" else "json": content}
        return client.request(method, template.format(**self.path(operation)), **stated)


def filled(folder: Path, **stores: Any) -> Pipeline:
    """The retail example with consents, a segment, a view and a trigger."""
    known = snapshot()
    ios = SegmentDocument(
        name="ios", query=queries.to_json(Query((Term("activity.platform", "ios"),))), version=1
    )
    view = ViewDocument(name="marketing", attributes={"years": "demographics.age"}, version=1)
    welcome = TriggerDocument(name="welcome", when=When(segment="ios"), webhook="crm", version=1)
    update = {
        "specs": (*known.specs, SPEC),
        "segments": (ios,),
        "views": (view,),
        "triggers": (welcome,),
    }
    pipeline = Pipeline(folder, snapshot=known.model_copy(update=update), **stores)
    pipeline.process(records(400))
    return pipeline


@contextmanager
def every_part(
    pipeline: Pipeline,
    callers: Sequence[Caller] = (),
    wrapped: Callable[[str, Any], Any] = lambda _, part: part,
) -> Iterator[EveryPart]:
    """The service of a `filled` pipeline, with further callers, and parts of its own as `wrapped` gives them by name."""
    folder = pipeline.folder
    with ExitStack() as stack:
        letters = stack.enter_context(closing(SqliteDeadLetters(folder / "dead-letters.db")))
        letters.put(pipeline.map(order(order_id=None), raw(b"{")).dead_letters)
        log = stack.enter_context(closing(SqliteHouseholdLog(folder / "households.db")))
        jobs = ScriptedJobs(pipeline, lambda: pipeline.snapshot)
        adapters: Any = pipeline
        desk = LocalDeadLetterDesk(
            letters,
            pipeline.sealer,
            pipeline.sources,
            pipeline.formats,
            lambda *_: [order()],
            OrphanedKeys(pipeline.store, pipeline.data_keys, letters).drop_dead_letters,
        )
        source = wrapped("source", SimpleNamespace(publish=len))
        hashed = pipeline.blind_index.identifier
        rights = Rights(
            ConsentInput("consents", "event", lambda lines: int(source.publish(lines))),
            jobs,
            Households(wrapped("households", log), lambda name: str(hashed(Identifier.parse(name)))),
            PersonTokens(b"key"),
            wrapped("dead letters", desk),
            wrapped("flows", reported_flow(folder)),
        )

        def projected(fragments: Collection[str]) -> bool:
            return project_now(adapters, whole.served.following, fragments)

        everything = caller(ALL, 100, may_reveal=True, scopes=list(Scope))
        served = stack.enter_context(
            served_here(
                pipeline,
                [everything, *callers],
                rights=rights,
                has_committed=lambda _: True,
                project=projected,
                contact_paths={"name": ["identity.name.first"]},
            )
        )
        client = served.client(ALL)

        def started(operation: str, **changed: Any) -> str:
            answer = client.post(operation, json=CALLS[f"POST {operation}"][1] | changed)
            assert answer.is_success, answer.text
            return str(answer.json()["id"])

        known = {
            "identifier": USER,
            "purpose": "marketing",
            "source": "orders",
            "dead_letter": letters.newest(1)[0].id,
            "access": started("/v1/access-requests"),
            "erasure": started("/v1/erasures"),
            "suggestions": started("/v1/links/suggestions"),
            "rules": started("/v1/identity-rules/previews"),
            "spec": started("/v1/specs/previews"),
            "cancelled": started("/v1/jobs", kind="reconcile"),
        }
        jobs.step(1, JobState.CANCELLED)
        known["export"] = started("/v1/jobs")
        jobs.step(1, JobState.DONE)
        known["running"] = started("/v1/jobs", kind="reindex")
        person, other = (
            str(client.post("/v1/person-tokens", json={"identifier": each}).json()["token"])
            for each in (USER, OTHER)
        )
        known["household"], known["left"], theirs = (
            served.client(each).post("/v1/me/households", json={"name": "first"}).json()["id"]
            for each in (person, person, other)
        )
        for use in ("accepted", "declined"):
            invited = served.client(other).post(f"/v1/me/households/{theirs}/invitations")
            known[use] = invited.json()["code"]
        whole = EveryPart(served, person, known)
        yield whole


def reported_flow(folder: Path) -> Flows:
    """A flow that has reported."""
    (folder / "idgraph.toml").write_text("")
    settings = load(folder / "idgraph.toml")
    settings.flow_state().mkdir(parents=True)
    snapshots: Any = SimpleNamespace(
        current=lambda: SimpleNamespace(snapshot=SimpleNamespace(version=7)), age=lambda: 1.0
    )
    flows = Flows(DocumentFolder(settings.directory))
    flows.write(FlowReporter(settings, snapshots, None, dict, None).report(FlowState.RUNNING))
    return flows
