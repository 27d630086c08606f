"""A query over files rests while none come, and takes what comes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.own_session import reported_by

pytestmark = [pytest.mark.spark, pytest.mark.long]

RESTED = """
import threading
from idgraph.model.flows import HeldSources
from ingestion.spark.query import resting

stream = FileStream({"all": FileSource(name="all", path=inbox)}, 9, checkpoint,
    HeldSources(DocumentFolder(checkpoint), ""))
taken, stop = [], threading.Event()
linked = folder / "linked"

def process(rows, number):
    taken.extend(names(rows))
    stream.took(number, 0, 0.0)

query = stream.load(session, Intake()).writeStream.foreachBatch(process)
query = query.option("checkpointLocation", str(checkpoint)).start()
query.processAllAvailable()
rest = resting(query, stream.traces, 3600.0)
assert rest.wait(0.5, lambda: False, stop)
# A linked directory leaves no traces: the query would find the file if it looked.
(linked / "unnoticed.jsonl").write_text("{}")
assert rest.wait(2.0, lambda: False, stop)
reported["resting"] = len(taken)
for late in ("late.jsonl", "deep/new.jsonl", "deep/later.jsonl"):
    (inbox / late).parent.mkdir(exist_ok=True)
    (inbox / late).write_text("{}")
    assert not rest.wait(60.0, lambda: False, stop), "it left traces"
    query.processAllAvailable()
    assert rest.wait(0.5, lambda: False, stop)
rest.end()
query.processAllAvailable()
query.stop()
reported["taken"] = sorted(Path(each).name for each in taken)
"""


def test_files_are_found_by_their_traces_and_a_resting_query_does_not_look(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "first.jsonl").write_text("{}")
    (tmp_path / "linked").mkdir()
    (tmp_path / "inbox" / "link").symlink_to(tmp_path / "linked")
    reported = reported_by(RESTED, tmp_path)
    assert reported["resting"] == 1
    assert reported["taken"] == ["first.jsonl", "late.jsonl", "later.jsonl", "new.jsonl", "unnoticed.jsonl"]


STUCK = """
import threading

query = session.readStream.format("rate").load().writeStream.foreachBatch(lambda rows, number: None)
query = query.option("checkpointLocation", str(checkpoint)).start()
query.processAllAvailable()
lock = query._jsq.streamingQuery().awaitProgressLock()
owner = threading.Thread(target=lock.lock)
owner.start()
owner.join()
try:
    query.stop()
except Exception as error:
    reported["stop"] = str(error)
"""


def test_a_query_whose_lock_is_lost_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """A second signal breaks off the call of Java in whose thread the lock is."""
    (tmp_path / "inbox").mkdir()
    assert "TimeoutException" in reported_by(STUCK, tmp_path)["stop"]
