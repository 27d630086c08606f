"""`idgraph resolve`: all persons again, compared with what the projection recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app import wiring
from idgraph.app.commands.context import JobWho, JobWhy, Json, keyed, origin_of
from idgraph.app.exits import Exit
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import counted, print_json
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.jobs import Progress
    from idgraph.model.snapshots import MetadataSnapshot
    from ingestion.spark.workers import WorkerResources
    from ingestion.stages.resolve import ResolvedProfile


def resolve(
    context: typer.Context,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="From scratch in Spark, without what readers and the projection use."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if anything differs.")
    ] = False,
    rules_restored: Annotated[
        bool,
        typer.Option(
            "--rules-restored",
            help="Today's rules count though newer ones did: those were lost with a metadata database.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for one JSON line per profile: id, fragments and identifiers."
        ),
    ] = None,
    who: JobWho = "",
    why: JobWhy = "",
    as_json: Json = False,
) -> None:
    """Resolve all profiles again, and correct what the projection recorded otherwise.

    After new identity rules it brings search up to date, and touches only the profiles that change. With --rebuild, Spark
    joins all fragments from scratch. Profiles on their way into the index are no difference. Exit code 1: with --check
    something differs, or the index has not taken it.
    """
    from idgraph.app.jobs.view import showing
    from idgraph.jobs.export_file import require_export, write_export
    from idgraph.jobs.resolve import ResolveAll
    from ingestion.stages.resolve import BEGINNING
    from transforms.privacy.protected_names import StoredNames

    settings = keyed(context)
    if output is not None:
        require_export(output, BEGINNING)
    wiring.prepare_directory(settings)
    with wiring.opened(settings) as resources, wiring.job_runner(settings) as runner:
        wiring.require_own_keyring(settings, resources, notes=False)
        snapshot = wiring.snapshot_to_read_by(settings).snapshot
        names = StoredNames(snapshot, resources.blind_index)
        job = ResolveAll(resources.store, resources.index, names.identifier, check, rebuild)
        with runner.started(job, origin_of(who, why)) as run, showing() as show:
            show(run)
            with _profiles(settings, resources, snapshot, rebuild) as profiles:
                lines = job.lines(run, profiles, show)
                if output is None:
                    for _ in lines:
                        pass
                else:
                    write_export(output, lines)
        _show_report(run.progress, check, as_json)
        differs = bool(run.progress.counts["misplaced"] or run.progress.counts["documents"])
        if not check and (differs or rules_restored):
            say("the projection corrects them")
            rules = wiring.index_rules(settings)
            projection = resources.projection(lambda: rules)
            if rules_restored:
                projection.count_as_newest()
            left = projection.sweep().left()
            differs = left > 0
            if left:
                say(f"the index has not taken {counted(left, 'fragment')}: the outbox keeps them")
    if differs:
        raise typer.Exit(Exit.FAILED)


@contextmanager
def _profiles(
    settings: Settings, resources: WorkerResources, snapshot: MetadataSnapshot, rebuild: bool
) -> Iterator[Iterator[ResolvedProfile]]:
    """All profiles: by a Spark session of their own, or in this process."""
    if not rebuild:
        from idgraph.jobs.resolve import read_profiles
        from merge.identity.persons import Persons
        from merge.identity.rules import Rules
        from transforms.privacy.protected_names import StoredNames

        show = StoredNames(snapshot, resources.blind_index).identifier
        yield read_profiles(Persons(resources.store, Rules(snapshot.identity_rules)), show)
        return
    from idgraph.app.flow_runner import require_shared
    from idgraph.app.java import class_archives, require_java
    from ingestion.spark.rebuild import rebuilt
    from ingestion.spark.session import session_beside

    require_shared(settings)
    require_java()
    folder = settings.directory / "resolve"
    with session_beside(settings.flow, settings.spark, folder, class_archives()) as session:
        yield rebuilt(session, wiring.worker_plan(settings), snapshot)


def _show_report(done: Progress, check: bool, as_json: bool) -> None:
    names = ("profiles", "misplaced", "documents", "waiting", "unreadable")
    counts = {name: done.counts[name] for name in names}
    if as_json:
        print_json({"fragments": done.done, **counts, "examples": done.notes})
        return
    print(f"{counted(done.done, 'fragment')}, {counted(counts['profiles'], 'profile')}")
    print(
        f"{counted(counts['misplaced'], 'fragment')} recorded for another profile{_such_as(done, 'misplaced')}"
    )
    if check:
        missing = counted(counts["documents"], "profile")
        print(f"{missing} without a document of its version{_such_as(done, 'documents')}")
        if counts["documents"]:
            say("`idgraph reconcile --repair` repairs documents")
    if counts["waiting"]:
        print(f"{counted(counts['waiting'], 'profile')} on the way into the index")
    if counts["unreadable"]:
        print(f"{counted(counts['unreadable'], 'fragment')} left out, whose stored state is damaged")


def _such_as(done: Progress, name: str) -> str:
    examples = done.notes.get(name, [])
    return f", such as {escape_control_chars(', '.join(examples))}" if examples else ""
