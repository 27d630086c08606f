"""Access requests and erasures of persons, run by threads of a service or by a command."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from idgraph.app import wiring
from idgraph.app.adapters.key_providers import provider_of
from idgraph.app.jobs.context import LocalJobContext
from idgraph.app.jobs.person_erasure import PersonErasure
from idgraph.app.jobs.rules_preview import comparison, preview_document, unseen
from idgraph.app.jobs.threads import JobThreads
from idgraph.jobs.access import AccessRequest, Part, dead_letter_part
from idgraph.jobs.erase.receipt import complete_from, write_receipt
from idgraph.jobs.job import Job
from idgraph.jobs.rules_preview import RulesPreview
from idgraph.model import canonical
from idgraph.model.errors import ConfigError, DamagedStateError, MetadataError, QueryError, StoreError
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.jobs import JobRecord, Progress, Requester
from idgraph.web.refusals import NotReadyError, RefusedRequestError
from ingestion.spark.workers import WorkerResources
from merge.identity.persons import Person
from metadata_service.identity_rules import check_rules
from metadata_service.specs.rules import check_spec, packaged_compiler
from profile_service.access_document import access_parts
from profile_service.history import History
from profile_service.links import Links
from profile_service.reader import ProfileReader
from transforms.privacy.protected_names import TombstoneNames

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.spec_preview.job import SpecPreviewJob
    from idgraph.model.specs import SpecDefinition
    from idgraph.snapshot_file import PinnedSnapshot
    from transforms.spec.operation_moves import Place


MOST_PREVIEWS = 20


class Opened(NamedTuple):
    """What jobs over persons are done with."""

    settings: Settings
    resources: WorkerResources
    reader: ProfileReader
    pinned: PinnedSnapshot


@contextmanager
def opened(settings: Settings, pinned: PinnedSnapshot | None = None) -> Iterator[Opened]:
    """By default under the newest snapshot to be had. Raises KeyProviderError, StoreError."""
    with wiring.opened(settings) as resources:
        wiring.require_own_keyring(settings, resources)
        pinned = pinned or wiring.snapshot_to_read_by(settings)
        yield Opened(settings, resources, wiring.profile_reader(settings, resources, pinned), pinned)


def the_person(reader: ProfileReader, identifier: Identifier) -> Person | None:
    """The one person of an identifier. Raises QueryError where several share it, DamagedStateError."""
    found = reader.owning(reader.stored_forms(identifier))
    if found.sharing:
        raise QueryError("several profiles share the identifier: name the person by one of their own")
    if found.unreadable:
        raise DamagedStateError("a stored fragment is damaged; restore it from a backup")
    return found.persons[0] if found.persons else None


def access_job(
    here: Opened, person: Person, by: str, keep: Callable[[bytes, Sequence[str]], None]
) -> AccessRequest:
    """The job that collects all of a person. `keep` gets the document and the person's fragments."""
    resources, reader = here.resources, here.reader
    ids = [each.stored.id for each in person.members]
    hashes = TombstoneNames(provider_of(here.settings))

    def parts() -> Iterator[Part]:
        links, history = Links(resources.store, reader), History(resources.store, reader.shown_name)
        hashed = resources.blind_index.identifier
        yield from access_parts(reader, links, history, person, hashed)
        search = wiring.dead_letter_search(here.settings, resources, here.pinned)
        with closing(wiring.household_log(here.settings)) as log:
            keys = {wiring.keyed_hash(resources)(each) for each in ids}
            entries = [each for household in log.of(keys) for each in log.read(household) if each.key in keys]
        yield "households", [each._asdict() for each in entries]
        names = {name for each in person.members for name in each.state.names()}
        found = list(search.find(resources.dead_letters.scan(), ids, names))
        yield dead_letter_part(found, resources.dead_letters, resources.sealer.open)

    def keep_unless_erased(content: bytes) -> None:
        keep(content, ids)
        if resources.store.tombstones(ids) != before:
            wiring.downloads(here.settings).erase(ids)
            raise StoreError("the person was erased meanwhile")

    before = resources.store.tombstones(ids)
    return AccessRequest(ids, by, hashes, parts, keep_unless_erased)


class PersonJobThreads(JobThreads):
    """The jobs of one service over persons."""

    def __init__(
        self,
        settings: Settings,
        pinned: Callable[[], PinnedSnapshot],
        protected_places: Callable[[SpecDefinition], Collection[Place]] = lambda _: (),
    ) -> None:
        """`protected_places` of a spec's input, by all versions of all specs; raises MetadataError."""
        super().__init__(settings, pinned)
        self._protected_places = protected_places
        self._previews: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> PersonJobThreads:
        super().__enter__()
        return self

    def start_access(self, identifier: Identifier, origin: Requester) -> JobRecord | None:
        """Collect all of a person; None if there is none. Raises QueryError, AlreadyRunningError, and what stores raise."""

        def job(here: Opened, job_id: Callable[[], str]) -> Job | None:
            person = the_person(here.reader, identifier)
            if person is None:
                return None

            def keep(content: bytes, ids: Sequence[str]) -> None:
                hours = self._settings.profiles.download_hours
                self._downloads.keep(job_id(), content, ids, hours)

            return access_job(here, person, origin.who, keep)

        return self._begun(job, origin)

    def start_rules_preview(self, rules: IdentityRules, sample: int | None, origin: Requester) -> JobRecord:
        """Compare identity rules with those in force. Raises SpecError for wrong ones, and as `start_access` does."""
        check_rules(rules)

        def job(here: Opened, job_id: Callable[[], str]) -> Job:
            resources, snapshot = here.resources, here.pinned.snapshot
            notes = list(unseen(snapshot.identity_rules, rules))

            def keep(preview: RulesPreview, progress: Progress) -> None:
                self._keep_preview(job_id(), {**preview_document(preview, progress), "notes": notes})

            return comparison(resources.store, resources.blind_index, snapshot, rules, sample, keep)

        return cast("JobRecord", self._begun(job, origin))

    def start_spec_preview(
        self, definition: SpecDefinition, sample: int, reveals: bool, origin: Requester
    ) -> JobRecord:
        """Compare a mapping spec with the one in force. Raises SpecError for one that would be refused, RefusedRequestError
        where there is nothing to read, and as `start_access` does."""
        from idgraph.app.jobs.spec_preview import spec_preview, spec_preview_document

        check_spec(definition, packaged_compiler)
        try:
            once = self._protected_places(definition)
        except MetadataError as error:
            raise NotReadyError(
                f"the values that earlier versions protected are not known: {error}"
            ) from None

        def job(here: Opened, job_id: Callable[[], str]) -> Job:
            def keep(preview: SpecPreviewJob) -> None:
                self._keep_preview(job_id(), spec_preview_document(preview))

            try:
                return spec_preview(
                    *(self._settings, here.resources, here.pinned.snapshot, definition, sample, reveals),
                    keep,
                    once,
                )
            except ConfigError as error:
                raise RefusedRequestError(str(error)) from None

        return cast("JobRecord", self._begun(job, origin))

    def start_suggestions(
        self,
        attributes: Sequence[str],
        blocking: Sequence[Sequence[str]],
        least_weight: float,
        clearance: int,
        origin: Requester,
    ) -> JobRecord:
        """Compare all profiles by attributes that a clearance sees. Raises as `start_access` does."""
        from idgraph.app.jobs.compared_values import compared_values
        from idgraph.jobs.suggestions import Suggestion, SuggestionJob

        def job(here: Opened, job_id: Callable[[], str]) -> Job:
            def keep(found: list[Suggestion]) -> None:
                items = [
                    {"pair": [each.one, each.other], "weight": each.weight, "parts": dict(each.parts)}
                    for each in found
                ]
                self._keep_preview(job_id(), {"items": items})

            records = compared_values(here.reader.with_clearance(clearance), attributes)
            total = here.resources.store.count()
            return SuggestionJob(total, records, attributes, blocking, least_weight, keep)

        return cast("JobRecord", self._begun(job, origin))

    def preview(self, job_id: str) -> dict[str, Any] | None:
        """What a preview found: only in the memory of this process, since its examples name persons."""
        return self._previews.get(job_id)

    def _keep_preview(self, job_id: str, found: dict[str, Any]) -> None:
        while len(self._previews) >= MOST_PREVIEWS and job_id not in self._previews:
            del self._previews[next(iter(self._previews))]
        self._previews[job_id] = found

    def preview_erasure(self, identifiers: Sequence[Identifier]) -> tuple[dict[str, int], str | None] | None:
        """How much an erasure would remove, by place, and the day from which it would hold in backups too; None if nothing is
        there. Raises as `start_access` does."""
        with opened(self._settings, self._pinned()) as here:
            erasure = self._erasure(here, identifiers)
            if erasure.is_empty:
                return None
            backup_days = self._settings.keys.backup_days
            counts = erasure.found.counts._asdict() | {"fragments_elsewhere": len(erasure.elsewhere)}
            return counts, complete_from(datetime.now(UTC), backup_days)

    def start_erasure(self, identifiers: Sequence[Identifier], origin: Requester) -> JobRecord | None:
        """Erase persons; None if nothing is there. Raises as `start_access` does."""

        def job(here: Opened, job_id: Callable[[], str]) -> Job | None:
            erasure = self._erasure(here, identifiers)
            if erasure.is_empty:
                return None

            def keep(receipt: dict[str, Any]) -> None:
                file = self._receipt_file(job_id())
                file.parent.mkdir(mode=0o700, exist_ok=True)
                write_receipt(file, receipt)
                found = canonical.encode(erasure.paths_to_redact)
                self._downloads.keep(job_id(), found, (), self._settings.profiles.download_hours)

            return erasure.job(origin, self._settings, keep)

        return self._begun(job, origin)

    def receipt(self, job_id: str) -> dict[str, Any] | None:
        """The receipt of an erasure; None before its end."""
        file = self._receipt_file(job_id)
        return json.loads(file.read_bytes()) if file.exists() else None

    def _erasure(self, here: Opened, identifiers: Sequence[Identifier]) -> PersonErasure:
        asked: dict[str, str] = {}
        ids: set[str] = set()
        for each in identifiers:
            forms = here.reader.stored_forms(each)
            asked |= dict.fromkeys(forms, str(each))
            found = here.reader.owning(forms)
            if found.sharing:
                raise QueryError("several profiles share an identifier: name each person by one of their own")
            ids.update(member.stored.id for person in found.persons for member in person.members)
            ids.update(found.unreadable)
        erasure = wiring.erasure(self._settings, here.resources, here.pinned)
        return PersonErasure(here.resources, erasure, here.reader, ids, asked)

    def _receipt_file(self, job_id: str) -> Path:
        return self._settings.directory / "receipts" / f"{job_id}.json"

    def _begun(
        self, make: Callable[[Opened, Callable[[], str]], Job | None], origin: Requester
    ) -> JobRecord | None:
        def prepare(context: LocalJobContext) -> Job | None:
            here = Opened(self._settings, context.resources(), context.reader(), context.pinned())
            return make(here, context.job_id)

        return self._started(prepare, origin)
