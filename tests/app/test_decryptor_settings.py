"""A source whose records arrive encrypted: from the configuration file to a worker, and to the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from idgraph.app import wiring
from idgraph.app.settings.document import load
from idgraph.model.errors import ConfigError, DecryptionError
from ingestion.spark.sent_snapshots import SentSnapshot, packed
from ingestion.spark.shuffle_blocks import decode_reports
from ingestion.spark.tasks import quick_task
from ingestion.spark.worker_process import BatchOrder
from ingestion.stages.dead_letters import BatchAttempt
from ingestion.stages.outcomes import StageReport
from tests.app.conftest import CommandLine
from tests.retail import EXAMPLE, order, snapshot
from tests.servers.decryption_service import Service, decryption_service, encrypted, status

pytestmark = pytest.mark.slow


CANARY = "Canary-Holly"


@pytest.fixture
def decrypting() -> Iterator[tuple[str, Service]]:
    with decryption_service() as served:
        yield served


def configured(idgraph: CommandLine, url: str, **keys: str) -> None:
    """The example's orders arrive encrypted; the token is in a file beside the configuration."""
    (idgraph.folder / "service.token").write_text("secret-token")
    file = idgraph.folder / "idgraph.toml"
    given = {"url": url, "token_file": "service.token", **keys}
    table = "[sources.decryptor]\ncapacity = 1\nretries = 0\n" + "".join(
        f'{key} = "{value}"\n' for key, value in given.items()
    )
    before, name, after = file.read_text().partition('name = "orders"')
    assert name
    rest, following, last = after.partition("\n[[sources]]")
    file.write_text(before + name + rest.rstrip() + "\n" + table + following + last)


def run(idgraph: CommandLine, *lines: bytes) -> StageReport:
    """What a worker does with a file of orders."""
    settings = idgraph.settings()
    wiring.prepare_directory(settings)
    inbox = settings.file_source("orders").path
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    plan = cloudpickle.loads(cloudpickle.dumps(wiring.worker_plan(settings)))
    assert b"secret-token" not in cloudpickle.dumps(plan)
    known = SentSnapshot(str(idgraph.folder), SimpleNamespace(value=packed(snapshot())))
    task = quick_task(plan, BatchOrder(BatchAttempt("main/q/0", "attempt"), known, False))
    paths = pa.record_batch([pa.array([f"file://{inbox / 'a.jsonl'}"])], names=["path"])
    return decode_reports(body for batch in task([paths]) for body in batch.column(1).to_pylist())


def canary(number: int) -> bytes:
    customer = {"email": f"p{number}@example.com", "name": {"first": CANARY, "last": CANARY}}
    return encrypted(order(number, number, customer=customer).value)


def test_a_worker_decrypts_and_a_replay_asks_again(
    served: CommandLine, decrypting: tuple[str, Service], capfd: pytest.CaptureFixture[str]
) -> None:
    url, service = decrypting
    configured(served, url, on_failure="dead_letter")
    service.faults.append(status(503, CANARY.encode()))
    report = run(served, canary(1), canary(2), canary(3))
    assert (report.events, report.decrypted, report.undecrypted) == (3, 2, 1)
    assert (report.dead, report.written) == ({"decryption_failed": 1}, 2)
    assert 0 < report.decrypt_seconds <= report.map_seconds
    assert list(service.authorizations) == ["Bearer secret-token"]
    assert [each.position for each in report.set_aside] == ["file:orders/a.jsonl#1"]
    (dead_letter,) = served.json("dead-letters", "list", "--json")
    assert dead_letter["stage"] == "decrypt"
    shown = served("dead-letters", "show", dead_letter["id"], "--reveal")
    assert CANARY not in shown.output
    assert encrypted(CANARY.encode()).decode() in shown.output
    assert served("attributes", "apply", EXAMPLE / "attributes.json").exit_code == 0
    assert served("specs", "apply", EXAMPLE / "specs" / "orders.json").exit_code == 0
    replayed = served("dead-letters", "replay", "--all")
    assert replayed.exit_code == 0, replayed.output
    assert served.json("dead-letters", "list", "--json") == []
    assert len(served("export").stdout.splitlines()) == 3
    files = [file for file in served.settings().directory.rglob("*") if file.is_file()]
    assert not [file.name for file in files if CANARY.encode() in file.read_bytes()]
    said = capfd.readouterr()
    assert CANARY not in said.out + said.err


def test_a_worker_that_is_to_stop_says_where(with_keys: CommandLine, decrypting: tuple[str, Service]) -> None:
    url, service = decrypting
    configured(with_keys, url)
    service.always = status(503)
    with pytest.raises(
        DecryptionError, match=r"^source orders: file:orders/a.jsonl#1: the decryption service failed 1 times"
    ):
        run(with_keys, canary(1))


@pytest.mark.parametrize(
    ("table", "reported"),
    [
        ('url = "ftp://h/"', "url"),
        ('url = "http://u:pw@h/"', "url"),
        ('url = "http://h/"\ncapacity = 0', "capacity"),
        ('url = "http://h/"\non_failure = "drop"', "on_failure"),
        ('url = "http://h/"\ntimeout = 1', "timeout"),
        ("capacity = 1", "url"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path, table: str, reported: str) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text(f'[[sources]]\nname = "web"\npath = "inbox"\n[sources.decryptor]\n{table}\n')
    with pytest.raises(ConfigError, match=f"decryptor.{reported}") as caught:
        load(file)
    assert "pw" not in str(caught.value)
