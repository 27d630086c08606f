"""Options of Spark's session that depend on the machine."""

from __future__ import annotations

from pathlib import Path

from idgraph.model.sources import FlowConfig
from idgraph.model.spark import SparkSettings
from ingestion.spark.session_options import session_options

LONGEST = 103
NAME = ".00000000-0000-0000-0000-000000000000.sock"


def sockets_folder(scratch: Path) -> str:
    options = session_options(FlowConfig(), SparkSettings(), scratch, scratch)
    assert options["spark.python.unix.domain.socket.enabled"] == "true"
    return options["spark.python.unix.domain.socket.dir"]


def test_other_users_of_the_machine_are_refused_by_sparks_ports() -> None:
    scratch = Path("/srv/shop/.idgraph/flows/shop/spark")
    assert session_options(FlowConfig(), SparkSettings(), scratch, scratch)["spark.authenticate"] == "true"


def test_sockets_are_in_the_flows_own_folder_where_their_paths_are_not_too_long() -> None:
    assert (
        sockets_folder(Path("/srv/shop/.idgraph/flows/shop/spark")) == "/srv/shop/.idgraph/flows/shop/spark"
    )
    for folder in ("/srv/" + "x" * 60, "/srv/" + "ß" * 30, "/srv" + "/x" * 200):
        assert len(f"{sockets_folder(Path(folder))}/{NAME}".encode()) <= LONGEST
