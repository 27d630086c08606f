"""The preview of a mapping spec: its parameters, the job over the files of the spec's source, and its result as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import Field

from idgraph.jobs.kind import JobContext
from idgraph.jobs.spec_preview.effect import MOST_PATHS
from idgraph.jobs.spec_preview.job import Inputs, SpecPreviewJob
from idgraph.jobs.spec_preview.sample import EventSample, files_of
from idgraph.jobs.spec_preview.stand_ins import StandIns
from idgraph.jobs.spec_preview.tried import TriedSnapshot
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import pattern_matches
from idgraph.model.specs import SpecDefinition, SpecDocument, SpecStatus
from ingestion.sources.files.lines import DamagedRecord, FileNames
from ingestion.stages.decrypt import Decryption
from merge.identity.rules import Rules
from transforms.privacy.protected_names import StoredNames

SAMPLE, MOST_EVENTS = 2000, 20_000


class SpecPreviewParameters(StrictDocument):
    """A mapping spec to compare with the one in force of its name, over so many events, drawn at random. `reveal`: the events
    are mapped as they are, else with stand-ins for protected values."""

    definition: SpecDefinition
    sample: int = Field(default=SAMPLE, ge=1, le=MOST_EVENTS)
    reveal: bool = False


def prepare(parameters: SpecPreviewParameters, context: JobContext) -> SpecPreviewJob:
    """The preview of a spec. Raises SpecError for a spec that would be refused, MetadataError where nobody knows what its
    earlier versions protected, ConfigError where there is nothing to read."""
    definition = parameters.definition
    context.check(definition)
    once = context.protected_places(definition)
    resources, snapshot = context.resources(notes=False), context.pinned().snapshot

    def keep(preview: SpecPreviewJob) -> None:
        context.keep(spec_preview_document(preview))

    now = next((each for each in snapshot.specs if each.name == definition.name), None)
    stated = dict(definition) | {"status": SpecStatus.ACTIVE}
    version = 1 if now is None else now.version + 1
    draft = SpecDocument(**stated, version=version, created=datetime.now(UTC))
    others = tuple(each for each in snapshot.specs if each.name != definition.name)
    changed = snapshot.model_copy(update={"specs": (*others, draft)})

    def is_meant(name: str) -> bool:
        return any(pattern_matches(each.source, name) for each in (now, draft) if each is not None)

    sources = context.plan.sources
    files = files_of(sources.values(), is_meant)
    if not files:
        known = ", ".join(sources) or "none"
        raise ConfigError(
            f"no configured source in files has events of {definition.source}, and a preview reads the source's own "
            f"files (configured: {known}); `idgraph map` tries the spec on records of a file"
        )
    routes: dict[tuple[str, str], bool] = {}

    def matches(source: str, event_type: str) -> bool:
        route = source, event_type
        if route not in routes:
            found = [each.spec_for(*route) for each in (snapshot, changed)]
            is_ours = any(each is not None and each.name == definition.name for each in found)
            if len(routes) > MOST_PATHS:
                routes.clear()
            routes[route] = is_ours
        return routes[route]

    def decrypt(records: Iterable[RawRecord | DamagedRecord]) -> Iterable[RawRecord | DamagedRecord]:
        return Decryption(sources, resources.decryptors).run(records)

    latest = int((time.time() + context.plan.flow.max_future_skew_seconds) * 1000)
    both = [
        TriedSnapshot(
            each,
            sources,
            resources.data_keys,
            resources.blind_index,
            resources.formats,
            latest,
            context.plan.flow.earliest_ordinal,
        )
        for each in (snapshot, changed)
    ]
    inputs = Inputs(
        FileNames(resources.blind_index),
        decrypt,
        resources.formats,
        context.plan.flow.max_event_bytes,
        context.plan.closed,
    )
    return SpecPreviewJob(
        {
            "spec": definition.name,
            "definition": definition.digest(),
            "version_in_force": now and now.version,
        },
        EventSample(files, matches, parameters.sample),
        inputs,
        cast("tuple[TriedSnapshot, TriedSnapshot]", tuple(both)),
        resources.store,
        (
            StoredNames(snapshot, resources.blind_index).identifier,
            StoredNames(changed, resources.blind_index).identifier,
        ),
        resources.tombstones,
        parameters.sample,
        None
        if parameters.reveal
        else StandIns(resources.blind_index.hashed, Rules(snapshot.identity_rules).identifier),
        once,
        keep,
    )


def spec_preview_document(job: SpecPreviewJob) -> dict[str, Any]:
    """The result as JSON shows it. `figures`: each a number, its share of the events (of the persons) looked at, and how far
    that share may be from the one of all, with 95 % confidence; 0 where all was read."""
    effect, persons, sample = job.effect, job.persons, job.sample
    changes = [each.document(path) for path, each in effect.attributes.items() if each.counts]
    order = ["exposes", "sensitive", "removed", "retyped", "added", "changed"]
    changes.sort(key=lambda each: (order.index(each["change"]), -each["events"], each["path"]))
    return {
        **{name: job.what[name] for name in ("spec", "definition", "version_in_force")},
        "sources": sorted(sample.sources),
        "files": sample.files,
        "files_read": sample.files_read,
        "events": sample.events,
        "looked_at": effect.counts["events"],
        "is_exact": sample.is_whole,
        "unreadable": sample.unreadable,
        "erased": effect.counts["erased"],
        "withheld": {"events": effect.counts["withheld"], "places": sorted(effect.computed)},
        "figures": job.figures(),
        "attributes": {
            **effect.paths(),
            "changes": changes,
            "is_complete": not effect.counts["unnamed_paths"],
        },
        "identifiers_opened": dict(effect.opened_types),
        "errors": [
            {**error._asdict(), "events": number, "positions": effect.error_positions[error]}
            for error, number in effect.errors.most_common()
        ],
        "persons": None
        if persons is None
        else {"merged": list(persons.merged_examples), "split": list(persons.split_examples)}
        | (
            {}
            if persons.known is None
            else {"of_events": persons.known.persons, "known_by": persons.known.by}
        ),
        "examples": effect.examples,
    }
