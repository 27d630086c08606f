"""The metadata service over HTTP."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import httpx
from pydantic import BaseModel

from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, Catalogue
from idgraph.model.behaviour import (
    ActivityDefinition,
    ActivityDocument,
    DerivedDefinition,
    DerivedDocument,
)
from idgraph.model.callers import CallerList
from idgraph.model.documents import Definition
from idgraph.model.errors import ApprovalNeededError, MetadataError, NotFoundError
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.records import (
    DiscoveryCounts,
    ModelRecord,
    PolicyChangeRecord,
    ProtectedPlaceList,
    PurgeRecord,
    RulesRecord,
    SchemaRecord,
    SpecCheckRecord,
    SpecHealthList,
    SpecHealthRecord,
    SpecRecord,
    UnmappedRecord,
    VersionRecord,
)
from idgraph.model.sandboxes import (
    PromotedItem,
    PromotedList,
    SandboxComparison,
    SandboxList,
    SandboxPromotion,
    SandboxRecord,
)
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot, PinnedSnapshot
from idgraph.model.spec_use import SpecUse
from idgraph.model.specs import SpecDefinition, SpecDocument
from idgraph.model.triggers import TriggerDefinition, TriggerDocument
from idgraph.model.views import SegmentDefinition
from idgraph.signatures import HISTORY_HEADER, NONCE_HEADER, PinnedKey
from sinks.http.connection import Answer, MetadataConnection, quoted

log = logging.getLogger(__name__)

MAX_CHANGES = 5000
JSON = {"Content-Type": "application/json"}


class SavedDefinition(BaseModel):
    """A definition as it is stored now, and what to look at."""

    name: str
    version: int
    warnings: tuple[str, ...] = ()


_LISTS: dict[type[Definition], str] = {
    ActivityDefinition: "activities",
    DerivedDefinition: "derived-attributes",
    SegmentDefinition: "segments",
    TriggerDefinition: "triggers",
}


class MetadataClient:
    """Calls one metadata service. Safe to share between threads; never pickled, since it holds a token.

    Every method blocks and raises `MetadataError` when the service is away, fails or refuses,
    `UnauthorizedError` when it refuses the token. Messages name method, URL and status, never the token.
    """

    def __init__(
        self,
        url: str,
        token: str,
        timeout: float = 10.0,
        ca_file: Path | None = None,
        pinned: PinnedKey | None = None,
        renewed: Callable[[], str] | None = None,
    ) -> None:
        """Snapshots are of the service whose key is `pinned`; without one, whoever answers is believed. `renewed`
        gives the token that is valid now, for when this one is refused."""
        self._http = MetadataConnection(url, token, timeout, ca_file, renewed)
        self._pinned = pinned
        self._models: dict[str, bytes] = {}

    def snapshot(self, etag: str | None = None, wait: float = 0) -> PinnedSnapshot | None:
        """The snapshot, or None if it still has this ETag after `wait` seconds (at most 60)."""
        nonce = secrets.token_hex(16)
        answer = self._get_newer("/v1/snapshot", etag, wait, {NONCE_HEADER: nonce})
        if self._pinned and (answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED):
            self._pinned.check(nonce, answer.headers, answer.content)
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return None
        if etag and answer.headers.get(HISTORY_HEADER) == "unknown":
            log.error(
                "the metadata service no longer has snapshot %s in its history: its database was restored from a "
                "backup, or its history rewritten; `idgraph audit verify` checks it there",
                etag.strip('"').partition("-")[0],
            )
        snapshot = self._http.read(MetadataSnapshot, answer).with_models(self._kept_model)
        self._models = snapshot.models
        return PinnedSnapshot(answer.headers.get("ETag", ""), snapshot)

    def _kept_model(self, digest: str) -> bytes | None:
        return self._models.get(digest) or self.model(digest)

    def model(self, digest: str) -> bytes | None:
        """The bytes of a model; None if there is none with this digest."""
        answer = self._http.call("GET", f"/v1/models/{digest}")
        return None if answer.status_code == httpx.codes.NOT_FOUND else answer.content

    def models(self) -> list[ModelRecord]:
        """All models, by digest."""
        return list(self._http.pages(ModelRecord, "/v1/models", {}))

    def add_model(self, content: bytes, name: str = "", reason: str = "") -> ModelRecord:
        """Keep a model; the same again changes nothing. Raises RefusedError."""
        headers = {"Content-Type": "application/octet-stream"}
        params = {"name": name, "reason": reason}
        return self._http.get_model(
            ModelRecord, "POST", "/v1/models", content=content, headers=headers, params=params
        )

    def catalogue(self, etag: str | None = None, wait: float = 0) -> tuple[Catalogue, str] | None:
        """The types of all attributes and their ETag, or None as `snapshot`."""
        answer = self._get_newer("/v1/catalogue", etag, wait, {})
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return None
        return self._http.read(Catalogue, answer), answer.headers.get("ETag", "")

    def _get_newer(self, path: str, etag: str | None, wait: float, headers: dict[str, str]) -> httpx.Response:
        return self._http.call(
            "GET",
            path,
            params={"wait": wait} if wait else {},
            headers=headers | ({"If-None-Match": etag} if etag else {}),
            timeout=httpx.Timeout(self._http.timeout, read=self._http.timeout + wait),
        )

    def callers(self, etag: str | None = None, wait: float = 0) -> tuple[CallerList, str] | None:
        """Callers of the profile service and their ETag, or None as `snapshot`. For tokens of the role `service` or
        `admin`."""
        answer = self._get_newer("/v1/callers", etag, wait, {})
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return None
        return self._http.read(CallerList, answer), answer.headers.get("ETag", "")

    def send(self, changes: list[SchemaChange]) -> list[RefusedSchemaChange]:
        """Implements `SchemaUpdates`."""
        refused = []
        for start in range(0, len(changes), MAX_CHANGES):
            some = changes[start : start + MAX_CHANGES]
            body = {"changes": [change.model_dump(mode="json") for change in some]}
            answer = self._http.get_model(SchemaRecord, "PATCH", "/v1/schema", json=body)
            refused += [
                RefusedSchemaChange(some[problem.index], problem.reason) for problem in answer.problems
            ]
        return refused

    def send_uses(self, uses: list[SpecUse]) -> None:
        """Implements `SpecUses`."""
        body = {"changes": [], "uses": [each.model_dump(mode="json") for each in uses]}
        self._http.get_model(SchemaRecord, "PATCH", "/v1/schema", json=body)

    def spec_health(self) -> tuple[list[SpecHealthRecord], list[UnmappedRecord]]:
        """The use of the active specs by flows, by name, and events that no spec maps."""
        found: list[SpecHealthRecord] = []
        cursor: dict[str, str] = {}
        while True:
            page = self._http.get_model(SpecHealthList, "GET", "/v1/spec-health", params=cursor)
            found += page.items
            if page.next is None:
                return found, page.unmapped
            cursor = {"cursor": page.next}

    def put_spec(
        self,
        definition: SpecDefinition,
        reason: str = "",
        etag: str | None = None,
        allow_failing_cases: bool = False,
    ) -> SpecRecord:
        """Store a new version, also active if its status says so; the same again makes none.

        With `etag` only if the spec still has it. Raises SpecError, with the place, for a refused spec.
        """
        path, more = f"/v1/specs/{quoted(definition.name)}", _nevertheless(allow_failing_cases)
        return self._put(SpecRecord, path, _stated(definition, SpecDefinition), reason, etag, **more)

    def check(self, definition: SpecDefinition) -> list[str]:
        """Would this spec be accepted? Gives warnings; raises SpecError, with the place, if not."""
        body = _stated(definition, SpecDefinition)
        answer = self._http.get_model(SpecCheckRecord, "POST", "/v1/specs/check", content=body, headers=JSON)
        return answer.warnings

    def protected_places(self, definition: SpecDefinition) -> dict[tuple[str | None, ...], bool]:
        """The places of its input that policy protects, by all versions of all specs: keys from the root, None for any. Each
        with whether a keyed hash of its values may name persons."""
        body = _stated(definition, SpecDefinition)
        path = "/v1/specs/protected-places"
        answer = self._http.get_model(ProtectedPlaceList, "POST", path, content=body, headers=JSON)
        return {tuple(each): each not in answer.unnamed for each in answer.places}

    def activate(
        self, name: str, version: int | None = None, reason: str = "", allow_failing_cases: bool = False
    ) -> SpecRecord:
        """Let a version (the latest, if none is given) map events."""
        return self._set_status(name, "active", version, reason, **_nevertheless(allow_failing_cases))

    def retire(self, name: str, version: int | None = None, reason: str = "") -> SpecRecord:
        """Let a version (the active one, if none is given) map no more events."""
        return self._set_status(name, "retired", version, reason)

    def get_spec(self, name: str) -> SpecRecord | None:
        """None if there is none of this name."""
        return self._http.find_model(SpecRecord, "GET", f"/v1/specs/{quoted(name)}")

    def get_spec_version(self, name: str, version: int) -> SpecDocument | None:
        """None if there is no such version."""
        path = f"/v1/specs/{quoted(name)}/versions/{version}"
        found = self._http.find_model(VersionRecord[SpecDocument], "GET", path)
        return None if found is None else found.document

    def list_specs(self) -> list[SpecRecord]:
        """All specs, by name."""
        return list(self._http.pages(SpecRecord, "/v1/specs", {}))

    def put_attribute(
        self, definition: AttributeDefinition, reason: str = "", etag: str | None = None
    ) -> AttributeMetadata:
        """Declare or redefine an attribute; the same definition again makes no new version. Raises
        ApprovalNeededError when it weakens protection: nothing is changed until a second person approves it."""
        path = f"/v1/attributes/{quoted(definition.path)}"
        return self._put(AttributeMetadata, path, _stated(definition, AttributeDefinition), reason, etag)

    def get_attribute(self, path: str) -> AttributeMetadata | None:
        """None if the path is unknown."""
        return self._http.find_model(AttributeMetadata, "GET", f"/v1/attributes/{quoted(path)}")

    def search_attributes(self, words: str = "", **filters: str) -> Iterator[AttributeMetadata]:
        """Attributes by path, fetched page by page. Filters: `prefix`, `source`, `status`,
        `classification`, `encryption`, `data_type`."""
        return self._http.pages(AttributeMetadata, "/v1/attributes", {"q": words, **filters})

    def decide_proposal(self, path: str, is_confirmed: bool, reason: str = "") -> AttributeMetadata:
        """Confirm or refuse what a detector proposed. Raises NotFoundError, RefusedError where no proposal
        waits, ApprovalNeededError when more than the proposal sealed it."""
        body = {"decision": "confirm" if is_confirmed else "refuse", "reason": reason}
        place = f"/v1/attributes/{quoted(path)}/proposal"
        return self._http.get_model(AttributeMetadata, "POST", place, json=body)

    def policy_changes(self, status: str | None = None) -> Iterator[PolicyChangeRecord]:
        """Edits that weaken protection, the newest first: all, or those `pending`, `approved` or `refused`."""
        return self._http.pages(
            PolicyChangeRecord, "/v1/policy-changes", {"status": status} if status else {}
        )

    def decide_change(self, number: int, is_approved: bool, reason: str = "") -> PolicyChangeRecord:
        """Approve a policy change, as another person than who asked for it, or refuse it. Raises NotFoundError,
        RefusedError when the service does not take the decision."""
        place = f"/v1/policy-changes/{number}/{'approve' if is_approved else 'refuse'}"
        return self._http.get_model(PolicyChangeRecord, "POST", place, json={"reason": reason})

    def request_redaction(self, path: str, reason: str = "") -> int:
        """Ask to redact a path and those below it; gives the number of the change, which a second person approves. Raises
        NotFoundError."""
        try:
            self._http.get_model(
                PolicyChangeRecord, "POST", "/v1/redactions", json={"path": path}, params={"reason": reason}
            )
        except ApprovalNeededError as kept:
            return kept.number
        raise MetadataError("the metadata service kept no change")

    def get_rules(self, version: int | None = None) -> RulesRecord:
        """The identity rules in force, or a version of them. Raises NotFoundError."""
        path = "/v1/identity-rules" + ("" if version is None else f"/versions/{version}")
        return self._http.get_model(RulesRecord, "GET", path)

    def put_rules(self, rules: IdentityRules, reason: str = "") -> RulesRecord:
        """Put other identity rules in force; the same again makes no new version. Raises RefusedError."""
        return self._put(RulesRecord, "/v1/identity-rules", _stated(rules, IdentityRules), reason)

    def activities(self) -> list[ActivityDocument]:
        """All activities, by name."""
        return list(self._http.pages(ActivityDocument, "/v1/activities", {}))

    def derived_attributes(self) -> list[DerivedDocument]:
        """All derived attributes, by name."""
        return list(self._http.pages(DerivedDocument, "/v1/derived-attributes", {}))

    def triggers(self) -> list[TriggerDocument]:
        """All triggers, by name."""
        return list(self._http.pages(TriggerDocument, "/v1/triggers", {}))

    def put_definition(self, definition: Definition, reason: str = "") -> SavedDefinition:
        """Put an activity, a derived attribute, a segment or a trigger in force; the same again makes no new version. Raises
        RefusedError."""
        kind = type(definition)
        path = f"/v1/{_LISTS[kind]}/{quoted(definition.name)}"
        return self._put(SavedDefinition, path, _stated(definition, kind), reason)

    def restore_derived(self, name: str, version: int, reason: str = "") -> SavedDefinition:
        """Put an older version of a derived attribute in force again, as a new one. Raises NotFoundError, RefusedError."""
        path = f"/v1/derived-attributes/{quoted(name)}/versions/{version}"
        older = self._http.find_model(VersionRecord[DerivedDocument], "GET", path)
        if older is None:
            raise NotFoundError(
                f"there is no version {version} of a derived attribute {name}: `idgraph behaviour list` shows all, with their newest "
                "version"
            )
        stated = older.document.model_dump(exclude={"version"}, exclude_unset=True)
        return self.put_definition(DerivedDefinition.model_validate(stated), reason)

    def get_defaults(self) -> DiscoveryDefaults:
        """The discovery defaults in force."""
        return self._http.get_model(DiscoveryDefaults, "GET", "/v1/discovery-defaults")

    def put_defaults(self, defaults: DiscoveryDefaults, reason: str = "") -> DiscoveryDefaults:
        """Change the discovery defaults. Raises ApprovalNeededError when that weakens protection."""
        body = _stated(defaults, DiscoveryDefaults)
        return self._put(DiscoveryDefaults, "/v1/discovery-defaults", body, reason)

    def discovery_counts(self) -> DiscoveryCounts:
        """The number of attributes in the catalogue, and those that each source added of late."""
        return self._http.get_model(DiscoveryCounts, "GET", "/v1/discovery-counts")

    def purge(self, source: str | None, prefix: str, dry_run: bool, reason: str = "") -> PurgeRecord:
        """Take undecided attributes out of the catalogue, or say which would go. Raises RefusedError."""
        body = {"source": source, "prefix": prefix, "dry_run": dry_run}
        params = {"reason": reason} if reason else {}
        return self._http.get_model(PurgeRecord, "POST", "/v1/attribute-purges", json=body, params=params)

    def sandboxes(self) -> list[SandboxRecord]:
        """All sandboxes, by name."""
        return self._http.get_model(SandboxList, "GET", "/v1/sandboxes").items

    def create_sandbox(self, name: str, reason: str = "") -> SandboxRecord:
        """Copy the metadata. Raises RefusedError for a name that is taken, or where there can be none."""
        body = {"name": name, "reason": reason}
        return self._http.get_model(SandboxRecord, "POST", "/v1/sandboxes", json=body)

    def compare_sandbox(self, name: str) -> SandboxComparison:
        """Differences between a sandbox and production. Raises NotFoundError."""
        return self._http.get_model(SandboxComparison, "GET", f"/v1/sandboxes/{quoted(name)}/comparison")

    def promote_sandbox(self, name: str, wanted: SandboxPromotion) -> list[PromotedItem]:
        """Publish edits of a sandbox. Raises NotFoundError, RefusedError where production moved on."""
        place = f"/v1/sandboxes/{quoted(name)}/promote"
        body = wanted.model_dump(mode="json")
        return self._http.get_model(PromotedList, "POST", place, json=body).items

    def delete_sandbox(self, name: str, reason: str = "") -> None:
        """Remove a sandbox with its profiles. Raises NotFoundError."""
        self._http.call("DELETE", f"/v1/sandboxes/{quoted(name)}", params={"reason": reason})

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(
        self, kind: type[Answer], path: str, body: bytes, reason: str, etag: str | None = None, **more: bool
    ) -> Answer:
        return self._http.get_model(
            kind,
            "PUT",
            path,
            content=body,
            params=more | ({"reason": reason} if reason else {}),
            headers=JSON | ({"If-Match": etag} if etag else {}),
        )

    def _set_status(
        self, name: str, status: str, version: int | None, reason: str, **more: bool
    ) -> SpecRecord:
        body = {"status": status, "version": version, "reason": reason, **more}
        return self._http.get_model(SpecRecord, "POST", f"/v1/specs/{quoted(name)}/status", json=body)


def _nevertheless(allow_failing_cases: bool) -> dict[str, bool]:
    return {"allow_failing_cases": True} if allow_failing_cases else {}


def _stated(definition: BaseModel, kind: type[BaseModel]) -> bytes:
    """The author's fields as JSON: without the fields that a stored document has besides, and without
    those that were not set, since the service refuses to open a sealed attribute by omission."""
    stated = definition.model_dump(include=set(kind.model_fields), exclude_unset=True)
    # A number with more digits than a double keeps arrives as a Decimal; the service stores doubles.
    return json.dumps(stated, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else float(value)
