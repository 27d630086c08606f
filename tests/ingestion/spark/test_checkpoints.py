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


def is_set_aside(checkpoint: Path) -> bool:
    return not checkpoint.exists() and checkpoint.with_name("checkpoint.damaged-0").is_dir()


@pytest.mark.parametrize("torn", ["offsets/1", "commits/1", "sources/0/1"])
@pytest.mark.parametrize("content", [b"", b"v", b'v1\n{"logOff', b"v1\n" + b"\0" * 40])
def test_with_a_torn_file_all_are_read_again(checkpoint: Path, torn: str, content: bytes) -> None:
    (checkpoint / torn).write_bytes(content)
    repair(checkpoint)
    assert is_set_aside(checkpoint)


@pytest.mark.parametrize("content", ["", '{"id":"the'])
def test_without_its_id_too(checkpoint: Path, content: str) -> None:
    (checkpoint / "metadata").write_text(content)
    repair(checkpoint)
    assert is_set_aside(checkpoint)


def test_each_that_was_set_aside_is_kept(checkpoint: Path) -> None:
    checkpoint.with_name("checkpoint.damaged-0").mkdir()
    (checkpoint / "commits/1").write_text("")
    repair(checkpoint)
    assert checkpoint.with_name("checkpoint.damaged-1").is_dir()


def checksums(file: Path) -> Path:
    blocks = [file.read_bytes()[start : start + 512] for start in range(0, file.stat().st_size, 512)]
    content = b"crc\0\0\0\2\0" + b"".join(crc32(block).to_bytes(4, "big") for block in blocks)
    beside = file.with_name(f".{file.name}.crc")
    beside.write_bytes(content)
    return beside


@pytest.mark.parametrize("torn", [None, "offsets/1", "metadata", "commits/.0.crc"])
def test_hadoop_refuses_what_its_checksums_do_not_fit(checkpoint: Path, torn: str | None) -> None:
    for file in [each for each in checkpoint.rglob("*") if each.is_file()]:
        checksums(file)
    if torn:
        content = (checkpoint / torn).read_bytes()
        (checkpoint / torn).write_bytes(
            content.replace(b"1", b"2").replace(b"the", b"own")[:12] + content[12:]
        )
        if torn.endswith(".crc"):
            (checkpoint / torn).write_bytes(b"crc")
    repair(checkpoint)
    assert is_set_aside(checkpoint) == (torn is not None)


def test_temporary_files_and_a_version_alone_are_not_torn(checkpoint: Path) -> None:
    (checkpoint / "offsets" / ".3.tmp").write_bytes(b"")
    (checkpoint / "sources/0" / "2").write_text("v1")
    before = left(checkpoint)
    repair(checkpoint)
    assert left(checkpoint) == before


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


@pytest.mark.parametrize("torn", ["offsets/2", "commits/1", "sources/0/0", "metadata"])
def test_where_topics_are_read_from_again_a_person_decides(of_kafka: Path, torn: str) -> None:
    (of_kafka / torn).write_bytes(b"v")
    before = left(of_kafka)
    with pytest.raises(
        ConfigError, match=f"unless kafka.starting_offsets is `latest`.* `mv {of_kafka} {of_kafka}.damaged-0`"
    ):
        repair(of_kafka, keeps_files=False)
    assert left(of_kafka) == before


def test_what_kafka_has_given_can_be_reported(of_kafka: Path, tmp_path: Path) -> None:
    found = [ranges_of(of_kafka, number) for number in range(4)]
    assert [ranges and sum(each.records() for each in ranges) for ranges in found] == [10, 10, 10, None]
    assert taken(of_kafka) == {"shop": {0: 25, 1: 7}}
    assert taken(tmp_path / "none") is None
    (of_kafka / "offsets/1").write_text('v1\n{}\n{"logOffset":3}')
    assert ranges_of(of_kafka, 1) is None
    assert taken(of_kafka) is None
