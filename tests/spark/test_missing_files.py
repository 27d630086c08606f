"""Files that are away when a micro-batch is planned or run: Spark leaves them out without a word, the flow does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, retail
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_each_file_of_a_micro_batch_that_is_gone_on_with_is_read_or_a_letter(
    tmp_path: Path, shop: Shop
) -> None:
    installation = Installation(tmp_path / "flow", shop)
    parts = [retail("orders")[start : start + 20] for start in (0, 20, 40)]
    files = [installation.publish("orders", part) for part in parts]
    installation.publish("orders", [], "empty.jsonl")
    installation.run()
    assert installation.dead_letters() == []
    _forget_the_end(installation, 0)
    away = [file.rename(installation.folder / file.name) for file in files[1:]]

    (batch,) = installation.run()
    assert (batch["files"], batch["dead_letters"]) == (4, {"corrupt_source": 2})
    positions = [letter["position"] for letter in installation.dead_letters()]
    assert sorted(positions) == [f"file:orders/{file.name}#1" for file in files[1:]]

    # They are back before the micro-batch is done: it reads them, and the letters of its earlier run go.
    _forget_the_end(installation, 0)
    for file in away:
        file.rename(files[0].with_name(file.name))
    (batch,) = installation.run()
    assert (batch["files"], batch["events"], batch["dead_letters"]) == (3, 60, {})
    assert installation.dead_letters() == []
    clean = Installation(tmp_path / "clean", shop)
    take(clean, {"orders": retail("orders")[:60]})
    assert installation.profiles() == clean.profiles()


def _forget_the_end(installation: Installation, number: int) -> None:
    """As after kill -9 before Spark noted it."""
    (commit,) = installation.folder.rglob(f"checkpoint/commits/{number}")
    commit.unlink()
    commit.with_name(f".{number}.crc").unlink(missing_ok=True)


FOLLOWED = """
import json, sys
from pathlib import Path
from app.java import class_archives
from ingestion.configuration import FileSource, FlowConfig
from ingestion.file_stream import FileStream
from ingestion.intake import Intake
from ingestion.session import start_session
from ingestion.spark_configuration import SparkSettings
from ingestion import local_disk

folder = Path(sys.argv[1])
session = start_session(
    FlowConfig(master="local[1]"), SparkSettings(), folder / "scratch", folder / "log", class_archives()
)
local_disk.install(session)
inbox, away = folder / "inbox", folder / "away"
stream = FileStream({"all": FileSource(name="all", path=inbox)}, 9, folder / "checkpoint")
told = {}
names = lambda rows: sorted(Path(row.path.removeprefix("file:")).name for row in rows.collect())

def process(rows, number):
    (inbox / "b %41.jsonl").rename(away)
    told["left"] = names(rows)
    away.rename(inbox / "b %41.jsonl")
    told["whole"] = [stream.is_whole(number, files) for files in range(4)]
    told["all"] = names(stream.in_other_tasks(number))

query = stream.load(session, Intake(until_done=True)).writeStream.foreachBatch(process)
query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
(folder / "told.json").write_text(json.dumps(told))
session.stop()
"""


def test_a_file_that_comes_back_before_anyone_looks_again_is_still_known(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    for name, content in {"a.jsonl": "{}", "b %41.jsonl": "{}", "empty.jsonl": ""}.items():
        (tmp_path / "inbox" / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["left"] == ["a.jsonl"]
    assert told["whole"] == [False, False, True, True]
    assert told["all"] == ["a.jsonl", "b %41.jsonl", "empty.jsonl"]
