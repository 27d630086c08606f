"""Sources that wait: their hold in the flow's folder, and the checkpoint without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from idgraph.model.flows import HeldSources, SourceHold, specs_for
from idgraph.model.kafka import KafkaSettings, KafkaSource
from idgraph.model.sources import FileSource, SourceConfig, ValuePlace
from ingestion.sources.files.stream import FileStream
from ingestion.sources.files.taken import files_of, leave_out
from ingestion.sources.kafka import offsets
from ingestion.sources.kafka.stream import KafkaStream
from ingestion.spark import checkpoints
from sinks.document_folder import DocumentFolder
from tests.retail import snapshot, spec

TYPE = ValuePlace(const="t")
KNOWN = {"till", "web"}


def hold(source: str, **more: object) -> SourceHold:
    known = {"why": "70 of 90", "at_ms": 1, "batch": 0, "batch_name": "f/q/0", "specs": ()}
    return SourceHold.model_validate({"source": source, **known, **more})


def test_a_hold_is_kept_and_taken_back_by_another_process(tmp_path: Path) -> None:
    flow, other = HeldSources(DocumentFolder(tmp_path), ""), HeldSources(DocumentFolder(tmp_path), "")
    assert (flow.holds(), flow.has_changed()) == ([], False)
    flow.hold(hold("till", offsets={"a": {0: 5}}))
    assert flow.is_new()
    flow.load(KNOWN)
    assert not flow.has_changed()
    assert flow.waiting["till"].offsets == {"a": {0: 5}}
    assert other.try_again("till")
    assert not other.try_again("till")
    assert flow.has_changed()
    flow.load(KNOWN)
    assert (list(flow.waiting), list(flow.tried_again)) == ([], ["till"])
    flow.was_taken("till")
    flow.load(KNOWN)
    assert list(flow.tried_again) == []


def test_a_source_is_tried_again_when_its_specs_change_and_only_then(tmp_path: Path) -> None:
    orders = SourceConfig(name="orders", type=TYPE)
    by_event = SourceConfig(name="any", type=TYPE, source=ValuePlace(path="from"))
    sources = {"orders": orders, "any": by_event, "new": SourceConfig(name="new", type=TYPE)}
    before = snapshot(1, specs=[spec("segment"), spec("orders")])
    held = HeldSources(DocumentFolder(tmp_path), "")
    for name, source in sources.items():
        held.hold(hold(name, specs=specs_for(before, source)))
    assert specs_for(before, sources["new"]) == ()
    assert held.follow(before, sources) == []
    after = snapshot(2, specs=[spec("segment"), spec("orders", version=9)])
    assert sorted(held.follow(after, sources)) == ["any", "orders"]
    assert [each.source for each in held.holds()] == ["new"]


def logged(checkpoint: Path, entries: dict[str, list[tuple[int, str]]], planned: int) -> None:
    """A log of files as Spark writes it, and plans of which each takes one entry."""
    log, plans = checkpoint / "sources" / "0", checkpoint / "offsets"
    log.mkdir(parents=True)
    plans.mkdir()
    for name, files in entries.items():
        lines = [json.dumps({"path": f"file://{file}", "timestamp": 1, "batchId": n}) for n, file in files]
        (log / name).write_text("\n".join(["v1", *lines]).replace(": ", ":").replace(", ", ","))
        (log / f".{name}.crc").write_bytes(b"of the content before")
    for number in range(planned):
        (plans / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{number}}}')


def test_files_since_a_micro_batch_are_taken_out_of_the_log(tmp_path: Path) -> None:
    first, second, third = (
        [(0, "/in/a/1"), (0, "/in/b/1")],
        [(1, "/in/a/2"), (1, "/in/b/2%20x")],
        [(2, "/in/b/3")],
    )
    logged(tmp_path, {"0": first, "1.compact": first + second, "2": third}, 3)

    for _ in range(2):
        leave_out(tmp_path, 1, lambda file: file.is_relative_to("/in/b"))
        assert files_of(tmp_path, 0) == [Path("/in/a/1"), Path("/in/b/1")]
        assert files_of(tmp_path, 1) == [Path("/in/a/2")]
        assert files_of(tmp_path, 2) == []
        assert not list(checkpoints._torn(tmp_path)) or not (tmp_path / "metadata").exists()
    leave_out(tmp_path, 77, lambda _: True)
    assert files_of(tmp_path, 1) == [Path("/in/a/2")]


def topics(checkpoint: Path, name: str, content: object) -> None:
    file = checkpoint / name
    file.parent.mkdir(parents=True, exist_ok=True)
    head = b"\0v1" if name.startswith("sources") else b'v1\n{"batchWatermarkMs":0}'
    file.write_bytes(head + b"\n" + json.dumps(content).encode())


@pytest.mark.parametrize("failed", [0, 1])
def test_topics_are_taken_out_and_put_back_where_they_began(tmp_path: Path, failed: int) -> None:
    topics(tmp_path, "sources/0/0", {"till": {"0": 3}, "web": {"0": 0, "1": 0}})
    topics(tmp_path, "offsets/0", {"till": {"0": 10}, "web": {"0": 4, "1": 9}})
    topics(tmp_path, "offsets/1", {"till": {"0": 20, "1": 7}, "web": {"0": 5, "1": 9}})
    topics(tmp_path, "offsets/2", {"till": {"0": 30, "1": 8}, "web": {"0": 6, "1": 9}})
    began = offsets.before(tmp_path, failed, ["till"])
    assert began == {"till": {0: 3 if failed == 0 else 10}}
    for _ in range(2):
        offsets.leave_out(tmp_path, failed, began)
    assert offsets.planned(tmp_path, 2) == {"web": {0: 6, 1: 9}}
    # The others go on.
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "2").touch()
    for _ in range(2):
        offsets.put_back(tmp_path, began)
    assert offsets.planned(tmp_path, 2) == {"web": {0: 6, 1: 9}, **began}
    topics(tmp_path, "offsets/3", {"till": {"0": 15}, "web": {"0": 8, "1": 9}})
    offsets.put_back(tmp_path, began)
    assert offsets.planned(tmp_path, 3) == {"web": {0: 8, 1: 9}, "till": {0: 15}}


def kafka(folder: Path, held: HeldSources, **sources: dict[str, object]) -> KafkaStream:
    made = {
        name: KafkaSource.model_validate({"name": name, "kind": "kafka", "type": TYPE, **each})
        for name, each in sources.items()
    }
    return KafkaStream(made, KafkaSettings(bootstrap_servers="nowhere:1"), folder, held)


def test_no_topic_of_a_source_that_waits_is_subscribed_to(tmp_path: Path) -> None:
    import re

    held = HeldSources(DocumentFolder(tmp_path), "")
    stream = kafka(
        tmp_path,
        held,
        till={"topics": ["shop.till"]},
        web={"topic_pattern": r"web\..*"},
        all={"topic_pattern": r"(shop|web)\..*"},
    )
    for waits in ("till", "web"):
        held.hold(hold(waits))
    held.load({"till", "web", "all"})
    pattern = re.compile(stream._options(2, 100)["subscribePattern"])
    assert stream.active() == {"all"}
    assert pattern.fullmatch("shop.orders")
    assert pattern.fullmatch("shop.till2")
    assert not pattern.fullmatch("shop.till")
    assert not pattern.fullmatch("web.clicks")


def checkpoint_of(folder: Path, query: str) -> None:
    """Of a flow from two topics, whose third micro-batch is done."""
    topics(folder, "sources/0/0", {"till": {"0": 0}, "web": {"0": 0}})
    for number in range(3):
        topics(folder, f"offsets/{number}", {"till": {"0": 10 + number}, "web": {"0": 20 + number}})
    (folder / "metadata").write_text(json.dumps({"id": query}))
    (folder / "commits").mkdir()
    (folder / "commits" / "2").touch()


FAILED = hold("till", batch=1, batch_name="f/q/1", offsets={"till": {"0": 10}})


def test_a_source_that_gets_another_name_while_it_waits_begins_where_it_failed_once(tmp_path: Path) -> None:
    checkpoint_of(tmp_path, "q")
    held = HeldSources(DocumentFolder(tmp_path), "")
    held.hold(FAILED)
    renamed: dict[str, dict[str, object]] = {"shop": {"topics": ["till"]}, "web": {"topics": ["web"]}}
    kafka(tmp_path, held, **renamed).edit_checkpoint()
    assert offsets.planned(tmp_path, 2) == {"till": {0: 10}, "web": {0: 22}}
    assert (held.holds(), held.has_changed()) == ([], False)
    # It goes on, and is not taken back by the next start.
    topics(tmp_path, "offsets/2", {"till": {"0": 12}, "web": {"0": 22}})
    kafka(tmp_path, HeldSources(DocumentFolder(tmp_path), ""), **renamed).edit_checkpoint()
    assert offsets.planned(tmp_path, 2) == {"till": {0: 12}, "web": {0: 22}}


@pytest.mark.parametrize("is_tried_again", [False, True])
def test_the_checkpoint_keeps_no_topic_that_another_source_or_none_reads_by_now(
    tmp_path: Path, is_tried_again: bool
) -> None:
    checkpoint_of(tmp_path, "q")
    held = HeldSources(DocumentFolder(tmp_path), "")
    held.hold(hold("till", batch=1, batch_name="f/q/1", offsets={"till": {"0": 10}, "gone": {"0": 3}}))
    if is_tried_again:
        held.try_again("till")
        kafka(tmp_path, held, till={"topics": ["till"]}, web={"topics": ["web"]}).edit_checkpoint()
        assert offsets.planned(tmp_path, 2) == {"till": {0: 10}, "web": {0: 22}}
    else:
        kafka(tmp_path, held, till={"topics": ["gone"]}, web={"topics": ["web", "till"]}).edit_checkpoint()
        assert offsets.planned(tmp_path, 2) == {"till": {0: 12}, "web": {0: 22}}


def test_a_hold_says_nothing_of_the_checkpoint_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    """As the one that reads all again into a store that was restored."""
    checkpoint_of(tmp_path, "another")
    held = HeldSources(DocumentFolder(tmp_path), "")
    held.hold(FAILED)
    held.try_again("till")
    kafka(tmp_path, held, till={"topics": ["till"]}, web={"topics": ["web"]}).edit_checkpoint()
    assert offsets.planned(tmp_path, 2) == {"till": {0: 12}, "web": {0: 22}}


@pytest.mark.parametrize(
    ("one", "other", "can_be"),
    [
        ("/in/a", "/in/b", True),
        ("/in", "/in/b", False),
        ("/in", "/in/b*.jsonl", False),
        ("/in/b", "/in", True),
        ("/in/*.jsonl", "/in/b", True),
        ("/in/a-*", "/in/b-*", True),
        ("/in/*", "/in/b-*", False),
        ("/in/a-*", "/other/a-*", True),
    ],
)
def test_a_source_whose_files_another_finds_cannot_be_left_out(
    one: str, other: str, can_be: bool, tmp_path: Path
) -> None:
    sources = {
        name: FileSource(name=name, type=TYPE, path=Path(path))
        for name, path in (("one", one), ("other", other))
    }
    assert (
        FileStream(sources, 9, tmp_path, HeldSources(DocumentFolder(tmp_path), "")).can_leave_out("other")
        is can_be
    )
