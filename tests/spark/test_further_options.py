"""Values of the configuration's further options are on no command line, and reach Spark as they were written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

OPTIONS = {
    "spark.authenticate.secret": "hunter2",
    "spark.idgraph.odd": "a = b: \\u0041 C:\\x\ty # ! ' \" $HOME grün 𝄞",
    # Reported by a machine's defaults too, and here otherwise.
    "spark.idgraph.both": "the configuration's",
    "spark.ui.showConsoleProgress": "ours goes before",
}
DEFAULTS = "spark.idgraph.both the machine's\nspark.idgraph.machine of the machine\n"

STARTED = """
import json, sys
from pathlib import Path
from idgraph.app.java import class_archives
from idgraph.model.sources import FlowConfig
from ingestion.spark.session import start_session
from idgraph.model.spark import SparkSettings

folder, options = Path(sys.argv[1]), json.loads(sys.stdin.read())
session = start_session(
    FlowConfig(master="local[1]"), SparkSettings(options=options), folder / "scratch", folder / "log", class_archives()
)
# Each command line here is readable by all; those of ours show_report the folder.
lines = []
for file in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        line = file.read_bytes().decode(errors="replace")
    except OSError:
        continue
    if str(folder) in line:
        lines.append(line)
conf = session.sparkContext.getConf()
reported = [lines, {name: conf.get(name) for name in [*options, "spark.idgraph.machine"]}]
(folder / "told.json").write_text(json.dumps(reported))
session.stop()
"""


def test_they_go_by_a_file(tmp_path: Path) -> None:
    defaults = tmp_path / "spark-conf"
    defaults.mkdir()
    (defaults / "spark-defaults.conf").write_text(DEFAULTS)
    done = subprocess.run(
        [sys.executable, "-c", STARTED, str(tmp_path)],
        input=json.dumps(OPTIONS),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SPARK_CONF_DIR": str(defaults)},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    # The archive of Java's classes does not fit another class path, which is nothing to a reader of the flow's reports.
    assert done.stdout == ""
    lines, seen = json.loads((tmp_path / "told.json").read_text())
    jvm = [line for line in lines if "SparkSubmit" in line]
    assert len(jvm) == 1
    assert "--properties-file" in jvm[0]
    assert [line for line in lines if "hunter2" in line or "grün" in line] == []
    assert seen == {
        **OPTIONS,
        "spark.ui.showConsoleProgress": "false",
        "spark.idgraph.machine": "of the machine",
    }
    assert not list((tmp_path / "scratch").glob("*.properties"))
