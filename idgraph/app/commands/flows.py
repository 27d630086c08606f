"""`idgraph flows`: progress of flows in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from idgraph.app.commands.context import Json, settings_of
from idgraph.app.exits import error_handler
from idgraph.app.terminal import print_json, print_table
from idgraph.model.errors import SourceUnavailableError

if TYPE_CHECKING:
    from idgraph.app.flow_offsets import PartitionState


def flows(context: typer.Context, as_json: Json = False) -> None:
    """Show the flow's partitions in Kafka: the taken offset, the end offset, and the lag."""
    from idgraph.app.flow_offsets import partition_states

    with error_handler():
        settings = settings_of(context)
        states = partition_states(settings)
        if as_json:
            for state in states:
                print_json(state._asdict())
        else:
            titles = ("flow", "topic", "partition", "taken", "end", "lag")
            print_table(titles, [_row(state) for state in states])
        if any(state.end is None for state in states):
            servers = settings.kafka.bootstrap_servers
            raise SourceUnavailableError(
                f"Kafka at {servers} does not return the end offset of each partition; is it running?"
            )


def _row(state: PartitionState) -> list[str]:
    values: list[Any] = list(state)
    return ["-" if value is None else f"{value:,}" if isinstance(value, int) else value for value in values]
