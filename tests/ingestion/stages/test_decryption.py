"""Records that arrive encrypted, through a real HTTP service and the stages."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from idgraph.app.adapters.inputs import open_decryptor
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import DecryptionError
from idgraph.model.events import RawRecord
from idgraph.model.kafka import KafkaSource
from idgraph.model.sources import DecryptorConfig, FileSource, SourceConfig, ValuePlace
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.kafka.envelope import frame, unframe
from ingestion.spark.worker_errors import error_of_worker, may_pass_again
from ingestion.stages.decrypt import Decryption, Decryptors
from tests.replaying import replay
from tests.retail import SOURCES, Pipeline, order, records, snapshot, spec
from tests.servers.decryption_service import Service, decryption_service, encrypted, status

CANARY = "Canary-Holly"


@pytest.fixture
def served() -> Iterator[tuple[str, Service]]:
    with decryption_service() as served:
        yield served


def with_decryptor(url: str, **given: Any) -> dict[str, SourceConfig]:
    config = DecryptorConfig(url=url, **{"retries": 1, "timeout_seconds": 60.0, **given})
    return {name: each.model_copy(update={"decryptor": config}) for name, each in SOURCES.items()}


@pytest.fixture
def decryptors() -> Iterator[Decryptors]:
    with closing(Decryptors(functools.partial(open_decryptor, 1 << 20))) as opened:
        yield opened


def arriving(record: RawRecord) -> RawRecord:
    return record._replace(value=encrypted(record.value))


def canary(number: int, **changed: Any) -> RawRecord:
    return order(
        number, number, customer={"email": f"p{number}@example.com", "name": {"first": CANARY}}, **changed
    )


def test_order_is_kept_whatever_each_takes(served: tuple[str, Service], decryptors: Decryptors) -> None:
    url, service = served
    chance = random.Random(7)
    service.seconds = lambda _: chance.choice([0.0, 0.0, 0.03])
    given = [order(number, number) for number in range(200)]
    work = Decryption(with_decryptor(url, capacity=16), decryptors)
    got = list(work.run(arriving(each) for each in given))
    assert [tuple(each) for each in got] == [tuple(each) for each in given]
    assert 1 < service.most_at_once <= 16
    counts = work.taken()
    assert (counts.decrypted, counts.undecrypted, counts.decrypt_retries) == (200, 0, 0)
    assert work.taken().decrypted == 0


def test_no_more_is_read_than_there_is_room_for(served: tuple[str, Service], decryptors: Decryptors) -> None:
    url, service = served
    service.seconds = lambda _: 0.05
    read = 0

    def reading() -> Iterator[RawRecord]:
        nonlocal read
        for number in range(40):
            read += 1
            yield arriving(order(number, number))

    for done, _ in enumerate(Decryption(with_decryptor(url, capacity=4), decryptors).run(reading()), 1):
        assert read <= done + 4
        time.sleep(0.01)
    assert service.most_at_once <= 4


def test_sources_without_a_decryptor_keep_their_place(
    served: tuple[str, Service], decryptors: Decryptors
) -> None:
    url, service = served
    service.seconds = lambda _: 0.02
    sources = {**SOURCES, "orders": with_decryptor(url, capacity=8)["orders"]}
    given = [order(n, n) if n % 3 else order(n, n)._replace(source="segment") for n in range(60)]
    damaged = DamagedRecord(order(1, 99), DeadLetterReason.TOO_LARGE, "too large")
    got = list(
        Decryption(sources, decryptors).run(
            [*(arriving(each) if each.source == "orders" else each for each in given), damaged]
        )
    )
    assert [tuple(each) for each in got[:-1]] == [tuple(each) for each in given]
    assert got[-1] is damaged
    assert len(service.positions) == 40


def test_profiles_are_those_of_the_same_events_in_the_clear(
    served: tuple[str, Service], decryptors: Decryptors, tmp_path: Path
) -> None:
    url, service = served
    given = list(records(30))
    plain = Pipeline(tmp_path)
    plain.process(given)
    sources = with_decryptor(url)
    service.faults.extend([status(503)] * 5)
    other = Pipeline(tmp_path, plain.key_store, sources=sources)
    other.process(Decryption(sources, decryptors).run(arriving(each) for each in given))
    assert other.export(reveal=True) == plain.export(reveal=True) != b""


def test_a_dead_letter_holds_what_arrived_and_is_decrypted_again_at_its_replay(
    served: tuple[str, Service], decryptors: Decryptors, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, service = served
    sources = with_decryptor(url, on_failure="dead_letter", retries=0, capacity=1)
    pipeline = Pipeline(tmp_path, sources=sources)
    service.faults.extend([status(400, CANARY.encode()), status(503, CANARY.encode())])
    given = [canary(1), canary(2), canary(3), canary(4, created_at="soon")]
    output = pipeline.map(*Decryption(sources, decryptors).run(arriving(each) for each in given))
    by_line = {dead_letter.position[-2:]: dead_letter for dead_letter in output.dead_letters}
    assert {line: (dead_letter.stage, dead_letter.reason) for line, dead_letter in by_line.items()} == {
        "#1": ("decrypt", "decryption_failed"),
        "#2": ("decrypt", "decryption_failed"),
        "#4": ("map", "transform_failed"),
    }
    assert by_line["#1"].detail == "the decryption service refused the record with status 400"
    for number, dead_letter in ((1, by_line["#1"]), (2, by_line["#2"]), (4, by_line["#4"])):
        opened = pipeline.sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position)
        assert opened == encrypted(given[number - 1].value)
        assert CANARY not in repr(dead_letter._replace(payload=b"")) + caplog.text
    resources = pipeline.resources()
    resources.decryptors = decryptors
    resources.dead_letters.put(output.dead_letters)
    report = replay(
        output.dead_letters,
        pipeline.plan(),
        resources,
        pipeline.snapshot,
        pipeline.sealer.open,
        lambda _: None,
    )
    assert (report.replayed, report.still_dead) == (2, 1)
    (left,) = resources.dead_letters.scan()
    assert left.id == by_line["#4"].id, "the same dead letter, whose bytes still are those that arrived"
    assert pipeline.sealer.open(left.payload, left.id, left.position) == encrypted(given[3].value)
    resources.dead_letters.close()


def test_a_flow_that_is_to_stop_says_where(served: tuple[str, Service], decryptors: Decryptors) -> None:
    url, service = served
    service.faults.append(status(401))
    with pytest.raises(
        DecryptionError, match=r"^source orders: file:orders/x.jsonl#1: the decryption service refused"
    ) as caught:
        list(
            Decryption(with_decryptor(url, capacity=1), decryptors).run(
                [arriving(order(1, 1)), arriving(order(2, 2))]
            )
        )
    assert may_pass_again(caught.value)
    assert type(error_of_worker(f"idgraph.model.errors.DecryptionError: {caught.value}\n")) is DecryptionError


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_record_that_is_refused_for_good_stops_no_flow(
    served: tuple[str, Service], decryptors: Decryptors, code: int
) -> None:
    url, service = served
    service.faults.append(status(code))
    given = [arriving(order(number, number)) for number in range(3)]
    refused, *others = Decryption(with_decryptor(url, capacity=1, on_failure="stop"), decryptors).run(given)
    assert isinstance(refused, DamagedRecord)
    assert (refused.record, refused.reason) == (given[0], DeadLetterReason.DECRYPTION_FAILED)
    assert [tuple(each) for each in others] == [tuple(order(number, number)) for number in (1, 2)]


def test_what_is_passed_on_is_marked_for_its_spec(
    served: tuple[str, Service], decryptors: Decryptors, tmp_path: Path
) -> None:
    """As a service may that is given whole records, of which it opens a part."""
    url, service = served
    document = spec("orders")
    marking = {"operation": "modify-overwrite-beta", "spec": {"+seen": {"undecrypted": "^undecrypted"}}}
    document = spec("orders", operations=[*document.operations, marking])
    sources = with_decryptor(url, on_failure="pass_on", retries=0, capacity=1)
    pipeline = Pipeline(tmp_path, sources=sources, snapshot=snapshot(specs=[document]))
    service.faults.append(status(422))
    work = Decryption(sources, decryptors)
    pipeline.process(work.run([order(1, 1), arriving(order(2, 2))]))
    marks = [each.attributes().get("seen") for each in pipeline.reader().scan(reveal=True)]
    assert sorted(marks, key=repr) == [None, {"undecrypted": True}]
    counts = work.taken()
    assert (counts.decrypted, counts.undecrypted) == (1, 1)


def test_of_a_record_of_kafka_the_payload_is_decrypted(
    served: tuple[str, Service], decryptors: Decryptors
) -> None:
    url, service = served
    source = KafkaSource(name="shop", kind="kafka", topics=("shop",), decryptor=DecryptorConfig(url=url))
    payload = b'{"a":\n1}'
    record = RawRecord("shop", "kafka:shop/0/1", frame(b"key", [("h", b"v")], 5, encrypted(payload)))
    tombstone = RawRecord("shop", "kafka:shop/0/2", frame(b"key", [], 5, None))
    got, passed = Decryption({"shop": source}, decryptors).run([record, tombstone])
    assert isinstance(got, RawRecord)
    assert unframe(got.value) == (unframe(record.value).carried, payload)
    assert got.as_arrived() == record.value
    assert passed is tombstone
    assert len(service.positions) == 1


def test_a_configuration_that_cannot_be_used_is_refused() -> None:
    for url in ("ftp://h/", "http://", "http://user:pw@host/", "decrypt"):
        with pytest.raises(ValueError, match="url"):
            DecryptorConfig(url=url)
    assert FileSource(name="a", path=Path("a"), id=ValuePlace(content=True)).decryptor is None
