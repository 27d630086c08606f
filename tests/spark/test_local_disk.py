"""Files as the driver sees them: each is taken once, whatever of its folder is hidden."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.spark.own_session import reported_by

pytestmark = [pytest.mark.spark, pytest.mark.long]

ODD = ("a b.jsonl", "ä%41ö.jsonl", "plus+&=?#.jsonl", "deep/er/c,{d}.jsonl")

FOLLOWED = """
from ingestion.sources.files.taken import files_of

hadoop = session._jvm.org.apache.hadoop.fs
disk = hadoop.FileSystem.get(session._jvm.java.net.URI("file:///"), session.sparkContext._jsc.hadoopConfiguration())
listed = lambda path: sorted(each.getPath().toString() for each in disk.listStatus(hadoop.Path(str(path))))
reported.update({"class": disk.getClass().getName(), "batches": [], "noted": [], "listed": []})

def run(runs):
    stream = FileStream({"all": FileSource(name="all", path=inbox)}, 3, checkpoint,
        HeldSources(DocumentFolder(checkpoint), ""))

    def process(rows, number):
        reported["batches"].append(names(rows))
        reported["noted"].append(sorted(map(str, files_of(checkpoint, number))))
        stream.took(number, 0, 0.0)
        reported["listed"].append(listed(inbox))

    query = stream.load(session, Intake()).writeStream.foreachBatch(process)
    query = query.option("checkpointLocation", str(checkpoint)).start()
    query.processAllAvailable()
    for name in runs:
        (inbox / name).write_text("{}")
        query.processAllAvailable()
    query.stop()

before = listed(inbox)
run(["late-1.jsonl", "late-2.jsonl"])
run(["later.jsonl", "deep/latest.jsonl"])
reported["unhidden"] = len(listed(inbox)) - len(before)
"""


def test_each_file_is_taken_once_and_then_hidden_from_its_query(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    names = [*ODD, *(f"{number:02d}.jsonl" for number in range(8))]
    for name in names:
        (inbox / name).parent.mkdir(parents=True, exist_ok=True)
        (inbox / name).write_text("{}")
    (inbox / ".half.jsonl.part").write_text("{")
    umask = os.umask(0)
    try:
        reported = reported_by(FOLLOWED, tmp_path)
    finally:
        os.umask(umask)
    assert reported["class"] == "idgraph.LocalDisk"
    taken = [file for batch in reported["batches"] for file in batch]
    late = ["late-1.jsonl", "late-2.jsonl", "later.jsonl", "deep/latest.jsonl"]
    assert sorted(Path(file).relative_to(inbox) for file in map(_plain, taken)) == sorted(
        map(Path, [*names, *late])
    )
    compacted = [file.name for file in (tmp_path / "checkpoint").rglob("*.compact")]
    assert sorted(compacted) == ["3.compact", "7.compact"], "one in each run"
    assert [sorted(map(_plain, batch)) for batch in reported["batches"]] == reported["noted"]
    # A folder, and what is not published yet.
    assert min(map(len, reported["listed"])) == 2
    # To others, and to the query's next run, all is there.
    assert reported["unhidden"] == 3
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()}
    assert modes == {0o600}


def _plain(path: str) -> str:
    return str(Path(path))
