"""`idgraph flows`: progress in Kafka, what flows report of themselves, pause and resume."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from idgraph.app.commands.context import Json, Why, note, stored
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal import print_json, print_table
from idgraph.app.wiring import local_user
from idgraph.model.errors import NotFoundError, SourceUnavailableError
from idgraph.model.text import visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from idgraph.app.flow_progress import PartitionState
    from idgraph.model.flows import FlowPause, FlowReport, Flows


commands = typer.Typer(help="Flows: offsets in Kafka, reports, pause, resume.")

Name = Annotated[str, typer.Argument(help="Name of a flow, as `idgraph flows show` lists it.")]


@commands.callback(invoke_without_command=True)
def flows(context: typer.Context, as_json: Json = False) -> None:
    """Show the flow's partitions in its topics: the taken offset, the end offset, and the lag."""
    if context.invoked_subcommand is not None:
        return
    from idgraph.app.flow_progress import partition_states
    from idgraph.model.pulsar import pulsar_sources

    settings = stored(context)
    states = partition_states(settings)
    is_pulsar = bool(pulsar_sources(settings.sources_by_name()))
    if as_json:
        for state in states:
            print_json(state._asdict())
    else:
        titles = ["flow", "topic", "partition", "taken", "end", "lag"]
        titles += ["seconds"] if is_pulsar else []
        print_table(titles, [_row(state)[: len(titles)] for state in states])
    if any(state.end is None for state in states):
        kafka, pulsar = settings.kafka.bootstrap_servers, settings.pulsar.admin_url
        raise SourceUnavailableError(
            f"{f'Pulsar at {pulsar}' if is_pulsar else f'Kafka at {kafka}'} does not return the end offset of each partition; is it running?"
        )


@commands.command()
def show(context: typer.Context, as_json: Json = False) -> None:
    """Show what each flow of this folder reported last."""
    from idgraph.app.adapters.shared_state import shared_flows

    with shared_flows(stored(context)) as known:
        found = [(name, known.report(name), known.pause_of(name)) for name in known.names()]
        held = {name: known.held(name).holds() for name, _, _ in found}
    if as_json:
        for name, report, pause in found:
            if report is not None:
                paused = pause.model_dump(mode="json") if pause else None
                waiting = [each.model_dump(mode="json", exclude={"offsets"}) for each in held[name]]
                print_json(report.model_dump(mode="json") | {"pause": paused, "held": waiting})
        return
    titles = ("flow", "state", "reported", "events/s", "set aside", "snapshot", "paused by")
    print_table(titles, [_shown(*each) for each in found])
    for name, report, _ in found:
        if report is not None and report.is_silent(time.time()):
            say(
                f"{name} is silent: it said {report.state} last and has not reported since, so it was killed or hangs. If no "
                "`idgraph run` of it is there, start it; it continues"
            )
    for name, holds in held.items():
        for hold in holds:
            say(
                f"{name}: source {hold.source} waits: {visible_lines(hold.why)}. It is tried again when its specs change, or by "
                f"`idgraph flows resume {name} --source {hold.source}`"
            )


@commands.command()
def pause(context: typer.Context, name: Name, why: Why) -> None:
    """Let a flow begin no further micro-batch until it is resumed, also when it starts again.

    Projection, erasures and jobs go on. Exit code 3: there is no such flow.
    """
    from idgraph.model.flows import FlowPause

    who = local_user()
    with _known(context, name) as flows:
        note(stored(context), "pause flow", subject=name, purpose=why)
        if not flows.pause(name, FlowPause(who=who, why=why, at_ms=time.time_ns() // 1_000_000)):
            found = flows.pause_of(name)
            say(f"{name} is paused already, by {found.who}: {found.why}" if found else f"{name} is paused")
            return
    say(f"{name} pauses after its micro-batch; `idgraph flows resume {name}` lets it go on")


@commands.command()
def resume(
    context: typer.Context,
    name: Name,
    why: Why = "",
    source: Annotated[
        str | None, typer.Option(help="A source that waits for too many dead letters: it is tried again.")
    ] = None,
) -> None:
    """Let a paused flow go on, or a source that waits.

    Exit code 3: there is no such flow, or the source does not wait.
    """
    with _known(context, name) as flows:
        if source is not None:
            waiting = [each.source for each in flows.held(name).holds()]
            if source not in waiting:
                raise NotFoundError(
                    f"source {source} does not wait in {name}; waiting: {', '.join(waiting) or 'none'}"
                )
            note(stored(context), "resume source", subject=f"{name}/{source}", purpose=why)
            flows.held(name).try_again(source)
            say(f"source {source} is tried again, at once or when {name} next runs")
            return
        note(stored(context), "resume flow", subject=name, purpose=why)
        say(f"{name} goes on" if flows.resume(name) else f"{name} is not paused")


@contextmanager
def _known(context: typer.Context, name: str) -> Iterator[Flows]:
    from idgraph.app.adapters.shared_state import shared_flows

    with shared_flows(stored(context)) as found:
        if name not in found.names():
            raise NotFoundError(f"no such flow: {name}; known: {', '.join(found.names()) or 'none'}")
        yield found


def _shown(name: str, report: FlowReport | None, pause: FlowPause | None) -> tuple[str, ...]:
    if report is None:
        return (name, *"-" * 6)
    now = time.time()
    return (
        name,
        "silent" if report.is_silent(now) else report.state,
        f"{report.age_seconds(now):,.0f} s ago",
        f"{report.events_per_second:,.1f}",
        f"{report.set_aside_share:.2%}",
        str(report.snapshot_version),
        visible_lines(f"{pause.who}: {pause.why}") if pause else "-",
    )


def _row(state: PartitionState) -> list[str]:
    values: list[Any] = list(state)
    return ["-" if value is None else f"{value:,}" if isinstance(value, int) else value for value in values]
