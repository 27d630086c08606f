"""Checkpoints as Spark writes them, interrupted as a power cut does; with Spark itself in tests/crashes."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from idgraph.model.errors import ConfigError
from ingestion.sources.kafka.offsets import ranges_of, taken
from ingestion.spark.checkpoints import is_done, query_id, repair

ENTRY = 'v1\n{"path":"file:///inbox/a.jsonl","timestamp":1,"batchId":0}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three micro-batches, the last one not done."""
    folder = tmp_path / "checkpoint"
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"the-query"}\n')
    for number in range(3):
        (folder / "offsets" / str(number)).write_text(
            f'v1\n{{"batchTimestampMs":1}}\n{{"logOffset":{number}}}'
        )
        (folder / "sources/0" / str(number)).write_text(ENTRY)
    for number in range(2):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def left(checkpoint: Path) -> list[str]:
    return sorted(str(file.relative_to(checkpoint)) for file in checkpoint.rglob("*") if file.is_file())


def test_a_whole_one_stays_as_it_is(checkpoint: Path) -> None:
    before = left(checkpoint)
    repair(checkpoint)
    assert left(checkpoint) == before
    assert query_id(checkpoint) == "the-query"
    assert (is_done(checkpoint, "1"), is_done(checkpoint, "2")) == (True, False)


def test_none_at_all_is_no_error(tmp_path: Path) -> None:
    repair(tmp_path / "checkpoint")
    assert query_id(tmp_path / "checkpoint") is None


def test_a_torn_id_alone_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("")
    (tmp_path / ".metadata.crc").write_text("")
    repair(tmp_path)
    assert left(tmp_path) == []


@pytest.mark.parametrize("torn", ["offsets/1", "commits/1", "sources/0/1"])
@pytest.mark.parametrize("content", [b"", b"v", b'v1\n{"logOff', b"v1\n" + b"\0" * 40])
def test_what_came_after_a_torn_file_is_reported_again(checkpoint: Path, torn: str, content: bytes) -> None:
    (checkpoint / torn).write_bytes(content)
    repair(checkpoint)
    assert left(checkpoint) == ["commits/0", "metadata", "offsets/0", "sources/0/0"]


def checksums(file: Path) -> Path:
    blocks = [file.read_bytes()[start : start + 512] for start in range(0, file.stat().st_size, 512)]
    content = b"crc\0\0\0\2\0" + b"".join(crc32(block).to_bytes(4, "big") for block in blocks)
    beside = file.with_name(f".{file.name}.crc")
    beside.write_bytes(content)
    return beside


def test_hadoop_refuses_what_its_checksums_do_not_fit(checkpoint: Path) -> None:
    for file in [each for each in checkpoint.rglob("*") if each.is_file()]:
        checksums(file)
    before = left(checkpoint)
    repair(checkpoint)
    assert left(checkpoint) == before
    (checkpoint / "commits" / ".0.crc").write_bytes(b"crc")
    (checkpoint / ".metadata.crc").write_bytes(b"")
    repair(checkpoint)
    assert left(checkpoint) == sorted({*before} - {"commits/.0.crc", ".metadata.crc"})
    (checkpoint / "offsets" / "1").write_text('v1\n{"batchTimestampMs":2}\n{"logOffset":1}')
    repair(checkpoint)
    assert [name for name in left(checkpoint) if "1" in name or "2" in name] == []
    assert "offsets/.0.crc" in left(checkpoint)


def test_a_torn_id_is_given_anew(checkpoint: Path) -> None:
    checksums(checkpoint / "metadata")
    (checkpoint / "metadata").write_text('{"id":"the')
    repair(checkpoint)
    assert query_id(checkpoint) not in (None, "the-query")
    assert "offsets/2" in left(checkpoint)
    assert ".metadata.crc" not in left(checkpoint)


def test_temporary_files_and_a_version_alone_are_not_torn(checkpoint: Path) -> None:
    (checkpoint / "offsets" / ".3.tmp").write_bytes(b"")
    (checkpoint / "sources/0" / "2").write_text("v1")
    before = left(checkpoint)
    repair(checkpoint)
    assert left(checkpoint) == before


def test_what_a_torn_compaction_held_makes_all_files_be_read_again(checkpoint: Path) -> None:
    # Spark has removed those before it.
    (checkpoint / "sources/0" / "0").unlink()
    (checkpoint / "sources/0" / "1").rename(checkpoint / "sources/0" / "1.compact")
    (checkpoint / "sources/0" / "1.compact").write_bytes(b'v1\n{"pa')
    repair(checkpoint)
    assert not checkpoint.exists()
    assert (checkpoint.parent / "checkpoint.damaged-0").is_dir()


def test_a_whole_compaction_holds_what_came_before(checkpoint: Path) -> None:
    (checkpoint / "sources/0" / "0").unlink()
    (checkpoint / "sources/0" / "1").rename(checkpoint / "sources/0" / "1.compact")
    (checkpoint / "sources/0" / "2").write_bytes(b"")
    repair(checkpoint)
    assert left(checkpoint) == [
        "commits/0",
        "commits/1",
        "metadata",
        "offsets/0",
        "offsets/1",
        "sources/0/1.compact",
    ]


def test_what_cannot_be_read_is_reported_with_its_name(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "7").mkdir()
    with pytest.raises(ConfigError, match=r"offsets/7: Is a directory"):
        repair(checkpoint)


@pytest.fixture
def of_kafka(checkpoint: Path) -> Path:
    """The same of a flow from Kafka: of its source it has only where it began."""
    for number in range(3):
        (checkpoint / "offsets" / str(number)).write_text(
            f'v1\n{{"batchTimestampMs":1}}\n{{"shop":{{"0":{number * 10 + 15},"1":7}}}}'
        )
        (checkpoint / "sources/0" / str(number)).unlink()
    (checkpoint / "sources/0/0").write_bytes(b'\0v1\n{"shop":{"0":5,"1":7}}')
    return checkpoint


def test_where_kafka_began_is_no_damage(of_kafka: Path) -> None:
    before = left(of_kafka)
    repair(of_kafka, keeps_files=False)
    assert left(of_kafka) == before


def test_a_torn_micro_batch_of_kafka_goes_on_from_the_one_before(of_kafka: Path) -> None:
    (of_kafka / "offsets/2").write_bytes(b"v1\n")
    (of_kafka / "commits/1").write_bytes(b"")
    repair(of_kafka, keeps_files=False)
    assert left(of_kafka) == ["commits/0", "metadata", "offsets/0", "sources/0/0"]


def test_a_torn_beginning_does_not_take_the_micro_batches_with_it(of_kafka: Path) -> None:
    (of_kafka / "sources/0/0").write_bytes(b"\0")
    repair(of_kafka, keeps_files=False)
    assert left(of_kafka) == [
        "commits/0",
        "commits/1",
        "metadata",
        "offsets/0",
        "offsets/1",
        "offsets/2",
    ]


def test_what_kafka_has_given_can_be_reported(of_kafka: Path, tmp_path: Path) -> None:
    found = [ranges_of(of_kafka, number) for number in range(4)]
    assert [ranges and sum(each.records() for each in ranges) for ranges in found] == [10, 10, 10, None]
    assert taken(of_kafka) == {"shop": {0: 25, 1: 7}}
    assert taken(tmp_path / "none") is None
    (of_kafka / "offsets/1").write_text('v1\n{}\n{"logOffset":3}')
    assert ranges_of(of_kafka, 1) is None
    assert taken(of_kafka) is None
