"""The job and the resources of `idgraph specs preview`, and its result for people and for scripts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import ensure_keyring
from idgraph.app.terminal import counted
from idgraph.jobs.spec_preview.effect import MOST_PATHS
from idgraph.jobs.spec_preview.job import Inputs, SpecPreviewJob
from idgraph.jobs.spec_preview.sample import MOST_SCANNED_BYTES, EventSample, files_of
from idgraph.jobs.spec_preview.stand_ins import StandIns
from idgraph.jobs.spec_preview.tried import TriedSnapshot
from idgraph.model.errors import ConfigError, MetadataError
from idgraph.model.snapshots import pattern_matches
from idgraph.model.specs import SpecDocument, SpecStatus
from idgraph.model.text import escape_control_chars
from ingestion.sources.files.lines import DamagedRecord, FileNames
from ingestion.stages.decrypt import Decryption
from merge.identity.rules import Rules
from metadata_service.specs.rules import check_spec, packaged_compiler
from transforms.privacy.protected_names import StoredNames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from idgraph.app.settings.document import Settings
    from idgraph.jobs.job import JobRunner
    from idgraph.model.events import RawRecord
    from idgraph.model.snapshots import MetadataSnapshot
    from idgraph.model.specs import SpecDefinition
    from ingestion.spark.workers import WorkerResources
    from transforms.spec.operation_moves import Place

SAMPLE = 2000
_MOST_PRINTED = 30


@contextmanager
def previewing(
    settings: Settings, definition: SpecDefinition, sample: int, reveals: bool
) -> Iterator[tuple[JobRunner, SpecPreviewJob]]:
    """The job for a command, and its runner. Raises SpecError, ConfigError, StoreError."""
    ensure_keyring(settings)
    wiring.prepare_directory(settings)
    with wiring.opened(settings) as resources, wiring.job_runner(settings) as runner:
        wiring.require_own_keyring(settings, resources, notes=False)
        snapshot = wiring.snapshot_to_read_by(settings).snapshot
        once: Collection[Place] = ()
        with suppress(MetadataError, ConfigError), wiring.metadata_client(settings) as client:
            # Whoever has the keyring here may reveal: without the service, what is in force counts.
            once = client.protected_places(definition)
        yield runner, spec_preview(settings, resources, snapshot, definition, sample, reveals, once=once)


def spec_preview(
    settings: Settings,
    resources: WorkerResources,
    snapshot: MetadataSnapshot,
    definition: SpecDefinition,
    sample: int,
    reveals: bool,
    keep: Callable[[SpecPreviewJob], None] = lambda _job: None,
    once: Collection[Place] = (),
) -> SpecPreviewJob:
    """The job that compares a new version of a spec with what is in force. `reveals`: it maps the events as they are,
    else with stand-ins for protected values. `keep` and `once` as of `SpecPreviewJob`. Raises SpecError for a spec that
    would be refused, ConfigError where there is nothing to read."""
    check_spec(definition, packaged_compiler)
    now = next((each for each in snapshot.specs if each.name == definition.name), None)
    stated = dict(definition) | {"status": SpecStatus.ACTIVE}
    version = 1 if now is None else now.version + 1
    draft = SpecDocument(**stated, version=version, created=datetime.now(UTC))
    others = tuple(each for each in snapshot.specs if each.name != definition.name)
    changed = snapshot.model_copy(update={"specs": (*others, draft)})

    def is_meant(name: str) -> bool:
        return any(pattern_matches(each.source, name) for each in (now, draft) if each is not None)

    sources = settings.sources_by_name()
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

    latest = int((time.time() + settings.flow.max_future_skew_seconds) * 1000)
    both = [
        TriedSnapshot(
            each,
            sources,
            resources.data_keys,
            resources.blind_index,
            resources.formats,
            latest,
            settings.flow.earliest_ordinal,
        )
        for each in (snapshot, changed)
    ]
    inputs = Inputs(
        FileNames(resources.blind_index),
        decrypt,
        resources.formats,
        settings.flow.max_event_bytes,
        (settings.directory, settings.keyring_file()),
    )
    return SpecPreviewJob(
        {
            "spec": definition.name,
            "definition": definition.digest(),
            "version_in_force": now and now.version,
        },
        EventSample(files, matches, sample),
        inputs,
        cast("tuple[TriedSnapshot, TriedSnapshot]", tuple(both)),
        resources.store,
        (
            StoredNames(snapshot, resources.blind_index).identifier,
            StoredNames(changed, resources.blind_index).identifier,
        ),
        resources.tombstones,
        sample,
        None
        if reveals
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


def print_preview(job: SpecPreviewJob) -> None:
    """Print the result for people."""
    found = spec_preview_document(job)
    figures = found["figures"]
    read = f"{counted(found['looked_at'], 'event')} looked at of {found['events']:,} in {counted(found['files'], 'file')}"
    if found["files_read"] < found["files"]:
        read += f", of which {found['files_read']:,} were read ({MOST_SCANNED_BYTES >> 20} MiB)"
    print(read + (": exact" if found["is_exact"] else "; errors at 95 % confidence"))
    if not found["looked_at"]:
        print(f"no event of this spec in the files of {', '.join(found['sources'])}")
        return
    if withheld := found["withheld"]["events"]:
        print(f"withheld: {counted(withheld, 'event')}, with whose protected values the spec computes:")
        for place in found["withheld"]["places"]:
            _line(f"  {place}")
        print("--reveal counts on them; the job keeps your name and the reason")
    for name in (
        "events_changed",
        "errors_new",
        "exposed",
        "persons_merged",
        "persons_split",
        "persons_known",
    ):
        if name in figures:
            print(f"{name.replace('_', ' ')}: {_figure(figures[name])}")
    known_by = (found["persons"] or {}).get("known_by", {})
    print("".join(f"  known by {kind}: {number:,}\n" for kind, number in known_by.items()), end="")
    for each in found["errors"]:
        place = each["pointer"] or each["reason"]
        _line(f"  {each['events']:,} at {place}: {each['message']} (such as {each['positions'][0]})")
    changes = found["attributes"]["changes"]
    print(f"attributes: {found['attributes']['added']} added, {found['attributes']['removed']} removed")
    for each in changes[:_MOST_PRINTED]:
        about = each["exposes"] or [each["looks_like"]] if each["change"] in ("exposes", "sensitive") else []
        _line(
            f"  {each['change']} {each['path']}: {each['events']:,} {', '.join(filter(None, about))}".rstrip()
        )
    if len(changes) > _MOST_PRINTED:
        print(f"  and {counted(len(changes) - _MOST_PRINTED, 'attribute')} more: --json has all")
    for kind, number in found["identifiers_opened"].items():
        print(f"identifiers of type {kind} would be stored readable: {number:,}")
    for key, name in (("of", "merged"), ("into", "split")):
        for each in (found["persons"] or {}).get(name, ()):
            _line(f"  {name}: {each['id']} {key} {', '.join(each[key])}")


def _figure(found: dict[str, Any]) -> str:
    error = f" ± {100 * found['error']:.2g} %" if found["error"] else ""
    return f"{found['number']:,} ({100 * found['share']:.3g} %{error})"


def _line(text: str) -> None:
    print(escape_control_chars(text))
