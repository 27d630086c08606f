"""Routes for previews of identity rules, mapping specs and derived attributes, for callers with the scope `rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from statistics import quantiles
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from idgraph.model import canonical
from idgraph.model.behaviour import DerivedDefinition, DerivedDocument
from idgraph.model.callers import Caller, Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import AlreadyRunningError, ConfigError
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.jobs import JobKind, JobRecord
from idgraph.model.specs import SpecDefinition
from idgraph.web.refusals import ForbiddenError, RefusedRequestError, UnknownSubjectError
from profile_service.api.dependencies import Service, scoped
from profile_service.api.documents import answer
from profile_service.api.rights import own_job, required, start_job
from profile_service.request_bodies import LONGEST_PURPOSE
from profile_service.service import ProfileService
from profile_service.visibility import HIGHEST
from profile_service.wanted import Wanted

router = APIRouter(prefix="/v1/identity-rules", tags=["identity rules"])
derived = APIRouter(prefix="/v1/derived-attributes", tags=["derived attributes"])
specs = APIRouter(prefix="/v1/specs", tags=["mapping specs"])

MOST_EVENTS = 20_000
MOST_PERSONS = 1_000
MOST_VALUES = 10
MOST_EXAMPLES = 10


class PreviewBody(StrictDocument):
    """Rules to compare with those in force. `sample`: look at so many fragments, drawn at random; null for all."""

    rules: IdentityRules
    sample: int | None = Field(default=None, ge=1)
    reason: str = Field(default="", max_length=LONGEST_PURPOSE)


class PreviewDocument(BaseModel):
    """A job, and what it found. A preview of identity rules has counts of profiles, merges, splits,
    violations and changed attributes, with examples; `errors` has the same keys where the numbers are
    estimates. A preview of a spec has `figures`: numbers of events and persons, each with its share of the
    sample, and the error of that share, 0 where all were read. Errors are at 95 % confidence. Protected
    identifiers are keyed hashes."""

    id: str
    state: str = Field(description="`running`, `done`, `failed`, `cancelled` or `interrupted`.")
    done: int = Field(description="Fragments, or events, that were looked at.")
    total: int
    result: dict[str, Any] | None = Field(
        default=None,
        description="Null before the end (of a spec: before the first events), and after a restart of the service.",
    )


def _admitted(caller: Annotated[Caller, scoped(Scope.RULES)]) -> Caller:
    if caller.clearance < HIGHEST:
        raise ForbiddenError(
            f"a preview names attributes and identifiers of all levels: it needs clearance {HIGHEST}"
        )
    return caller


Admitted = Annotated[Caller, Depends(_admitted)]


@router.post("/previews", response_model=PreviewDocument, status_code=202)
def start(body: PreviewBody, service: Service, caller: Admitted) -> Response:
    """Preview rules on the stored profiles: a job that changes nothing. One runs at a time (409)."""
    return _started(service, caller, {"rules": {"rules": body.rules, "sample": body.sample}}, body.reason)


def _started(service: ProfileService, caller: Caller, stated: dict[str, Any], reason: str) -> Response:
    nothing = "there is nothing to preview"
    job = start_job(service.rights, caller, JobKind.PREVIEW, stated, reason, nothing)
    return answer(_document(service, job), status=202)


def _document(service: ProfileService, job: JobRecord) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": str(job.state),
        "done": job.progress.done,
        "total": job.progress.total,
        "result": required(service.rights.jobs).result(job.id),
    }


class SpecPreviewBody(StrictDocument):
    """A mapping spec to compare with the one in force of its name, if there is one. `sample`: look at so many events,
    drawn at random. Events with whose protected values the spec computes are `withheld`; `reveal` counts on them too,
    for callers who may reveal, and its `reason` is recorded."""

    definition: SpecDefinition
    sample: int = Field(default=2000, ge=1, le=MOST_EVENTS)
    reveal: bool = False
    reason: str = Field(default="", max_length=LONGEST_PURPOSE)


@specs.post("/previews", response_model=PreviewDocument, status_code=202)
def start_spec_preview(body: SpecPreviewBody, service: Service, caller: Admitted) -> Response:
    """Preview a spec on events in the source's own files: a job that changes nothing. One runs at a time (409)."""
    if body.reveal:
        service.require_rights(caller, Wanted(None, False, True, body.reason))
        service.note(caller, "reveal in preview", subject=body.definition.name, purpose=body.reason)
    stated = {"definition": body.definition, "sample": body.sample, "reveal": body.reveal}
    try:
        return _started(service, caller, {"spec": stated}, body.reason)
    except AlreadyRunningError:
        raise
    except ConfigError as error:
        # No source in files has its events.
        raise RefusedRequestError(str(error)) from None


class DerivedPreviewBody(StrictDocument):
    """A derived attribute to compare with the one in force of its name, if there is one, on so many persons."""

    definition: DerivedDefinition
    sample: int = Field(default=MOST_PERSONS, ge=1, le=MOST_PERSONS)


class ValueCount(BaseModel):
    """The number of persons who have a value."""

    path: str
    value: Any
    before: int
    after: int


class Spread(BaseModel):
    """The distribution of numbers."""

    persons: int = Field(description="Those who have a number.")
    least: float
    lower_quartile: float
    median: float
    upper_quartile: float
    greatest: float


class NumberSpread(BaseModel):
    """The numbers of all persons at a path; null without any."""

    path: str
    before: Spread | None
    after: Spread | None


class DerivedExample(BaseModel):
    """A person whose values change. The values are by path."""

    id: str
    before: dict[str, Any]
    after: dict[str, Any]


class DerivedPreview(BaseModel):
    """The effect on the first persons in the order of their ids, as of now."""

    persons: int = Field(description="Those that were looked at.")
    changed: int
    gained: int = Field(description="Persons who have a value by the new definition alone.")
    lost: int = Field(description="Persons who have a value by the present definition alone.")
    values: list[ValueCount] = Field(description=f"The most frequent, at most {MOST_VALUES}.")
    numbers: list[NumberSpread] = Field(description="By path, of values that are numbers.")
    examples: list[DerivedExample] = Field(description=f"At most {MOST_EXAMPLES}.")


def _frequencies(found: Iterable[dict[str, Any]]) -> Counter[tuple[str, bytes]]:
    return Counter((path, canonical.encode(value)) for each in found for path, value in each.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _spread(found: Counter[tuple[str, bytes]], path: str) -> dict[str, Any] | None:
    numbers = sorted(
        float(value)
        for (place, text), persons in found.items()
        if place == path and _is_number(value := canonical.decode(text))
        for _ in range(persons)
    )
    if not numbers:
        return None
    lower, median, upper = quantiles(numbers, method="inclusive") if numbers[1:] else numbers * 3
    return {
        "persons": len(numbers),
        "least": numbers[0],
        "lower_quartile": lower,
        "median": median,
        "upper_quartile": upper,
        "greatest": numbers[-1],
    }


def derived_preview(service: ProfileService, caller: Caller, body: DerivedPreviewBody) -> dict[str, Any]:
    """The `DerivedPreview`. Raises SpecError, RefusedRequestError, StoreError, and MetadataError where a model cannot be asked
    for."""
    from transforms.behaviour.derivations import compile_derived

    reader = service.reader(caller)
    definition = DerivedDocument(**dict(body.definition), version=1)
    models: dict[str, bytes] = {}
    if definition.model is not None:
        digest, following = definition.model.digest, service.following
        content = following.edition().snapshot.models.get(digest) or following.model(digest)
        models = {} if content is None else {digest: content}
    if definition.status == "active":
        compile_derived(definition, models.__getitem__)
    if unknown := sorted(set(definition.activities) - reader.activities().keys()):
        raise RefusedRequestError(f"there is no activity {unknown[0]}", "/definition")
    persons = list(reader.try_derived(definition, body.sample, models))
    changed = [each for each in persons if each[1] != each[2]]
    before = _frequencies(old for _, old, _ in persons)
    after = _frequencies(new for _, _, new in persons)
    frequent = sorted({*before, *after}, key=lambda each: (-max(before[each], after[each]), each))
    return {
        "persons": len(persons),
        "changed": len(changed),
        "gained": sum(not old for _, old, _ in changed),
        "lost": sum(not new for _, _, new in changed),
        "values": [
            {
                "path": each[0],
                "value": canonical.decode(each[1]),
                "before": before[each],
                "after": after[each],
            }
            for each in frequent[:MOST_VALUES]
        ],
        "numbers": [
            {"path": path, "before": _spread(before, path), "after": _spread(after, path)}
            for path in sorted({path for path, value in frequent if _is_number(canonical.decode(value))})
        ],
        "examples": [{"id": name, "before": old, "after": new} for name, old, new in changed[:MOST_EXAMPLES]],
    }


@derived.post("/preview", response_model=DerivedPreview)
def preview_derived(body: DerivedPreviewBody, service: Service, caller: Admitted) -> Response:
    """Preview a derived attribute on stored persons. Nothing is stored."""
    return answer(derived_preview(service, caller, body))


@router.get("/previews/{job}", response_model=PreviewDocument)
def get(job: str, service: Service, caller: Admitted) -> Response:
    """The progress of a preview, and its result when it is done."""
    return answer(_document(service, _own(job, service, caller, is_of_spec=False)))


@specs.get("/previews/{job}", response_model=PreviewDocument)
def get_spec_preview(job: str, service: Service, caller: Admitted) -> Response:
    """The progress of a preview, and its result so far. `POST /v1/jobs/{id}/cancel` stops it and keeps the result."""
    return answer(_document(service, _own(job, service, caller, is_of_spec=True)))


def _own(job: str, service: ProfileService, caller: Caller, is_of_spec: bool) -> JobRecord:
    found = own_job(service.rights, caller, job, JobKind.PREVIEW)
    if ("spec" in found.what) is not is_of_spec:
        raise UnknownSubjectError("this caller has no such job")
    return found
