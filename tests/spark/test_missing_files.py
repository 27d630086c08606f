"""Files that are away when a micro-batch is planned or run: Spark leaves them out without a word, the flow does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.installation import Installation, Shop, retail
from tests.spark.own_session import reported_by
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_each_file_of_a_micro_batch_that_is_gone_on_with_is_read_or_a_dead_letter(
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
    positions = [dead_letter["position"] for dead_letter in installation.dead_letters()]
    assert sorted(positions) == [f"file:orders/{file.name}#1" for file in files[1:]]

    # They are back before the micro-batch is done: it reads them, and the dead letters of its earlier run go.
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
stream = FileStream({"all": FileSource(name="all", path=inbox)}, 9, checkpoint,
    HeldSources(DocumentFolder(checkpoint), ""))
away = folder / "away"

def process(rows, number):
    (inbox / "b %41.jsonl").rename(away)
    reported["left"] = names(rows)
    away.rename(inbox / "b %41.jsonl")
    reported["whole"] = [stream.is_whole(number, files) for files in range(4)]
    reported["all"] = names(stream.in_other_tasks(number))

query = stream.load(session, Intake(until_done=True)).writeStream.foreachBatch(process)
query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
"""


def test_a_file_that_comes_back_before_anyone_looks_again_is_still_known(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    for name, content in {"a.jsonl": "{}", "b %41.jsonl": "{}", "empty.jsonl": ""}.items():
        (tmp_path / "inbox" / name).write_text(content)
    reported = reported_by(FOLLOWED, tmp_path)
    assert _names(reported["left"]) == ["a.jsonl"]
    assert reported["whole"] == [False, False, True, True]
    assert _names(reported["all"]) == ["a.jsonl", "b %41.jsonl", "empty.jsonl"]


def _names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]
