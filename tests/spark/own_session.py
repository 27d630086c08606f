"""A program with a Spark session of its own, in a process of its own: how a session is made shows in what Spark does with files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

_BEGIN = """
import json, sys
from pathlib import Path
from idgraph.app.java import class_archives
from idgraph.model.sources import FileSource, FlowConfig
from ingestion.sources.files.stream import FileStream
from idgraph.model.flows import HeldSources
from sinks.document_folder import DocumentFolder
from ingestion.sources.stream import Intake
from ingestion.spark.session import start_session
from idgraph.model.spark import SparkSettings

folder = Path(sys.argv[1])
inbox, checkpoint, reported = folder / "inbox", folder / "checkpoint", {}
session = start_session(
    # Spark's log of files is compacted so often that few micro-batches show it.
    FlowConfig(master="local[1]"), SparkSettings(options={"spark.sql.streaming.fileSource.log.compactInterval": "4"}),
    # The machine's archive of classes: to write one of its own would take longer than all else.
    folder / "scratch", folder / "log", class_archives()
)
names = lambda rows: sorted(row.path.removeprefix("file:") for row in rows.collect())
"""

_END = """
(folder / "told.json").write_text(json.dumps(reported))
session.stop()
"""


def reported_by(program: str, folder: Path) -> Any:
    """What a program puts into `reported`. It has `session`, `folder`, its `inbox` and `checkpoint`, the names that `_BEGIN` brings, and
    `names`, sorted, of the files of some rows."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program + _END, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "told.json").read_text())
