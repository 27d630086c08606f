"""Law 3 end to end: plaintext that policy protects, or that looks as if it should, is in no file that the
system wrote and in no message, also after crashes and for events that failed half-way."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from idgraph.app.java import class_archives
from idgraph.model.errors import ApprovalNeededError
from idgraph.model.specs import SpecDefinition
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from tests.canaries import content_of, files_below, leaks
from tests.installation import Installation, Shop, kill_tree, retail, until, workers
from tests.spark.conftest import serving_shop

pytestmark = pytest.mark.spark

MAIL = "canary.kahuna@example.com"
NAME = "Kanarienvogel Zitronengelbé"
STREET = "4711 Canaryrow Boulevard"
DECLARED = (MAIL, NAME, STREET)
CONTACT = "canary.kakapo@example.org"
TOKEN = "ghp_CanaryKakapo0123456789abcdefghijkl"
ACCOUNT = "GB82WEST12345698765432"
DETECTED = (CONTACT, TOKEN, ACCOUNT)
BROKEN = "canary-in-a-broken-event-é"
HALFWAY = "canary-in-a-spec-that-fails-halfway"
KEY = "canary.key@example.net"
FILE = "canary.file@example.net"
CANARIES = (*DECLARED, *DETECTED, BROKEN, HALFWAY, KEY)

SPARK_LISTS = frozenset({"inbox", "sources"})
"""`flows/NAME/checkpoint/sources` is Spark's list of the files that it took: names in the clear."""


def segment(number: int, **changes: object) -> bytes:
    whole: dict[str, object] = {
        "type": "identify",
        "userId": f"c{number}",
        "anonymousId": f"anonymous-{number}",
        "messageId": f"canary-{number}",
        "timestamp": "2024-03-01T00:00:00Z",
        "platform": "web",
        "traits": {"email": f" {MAIL.upper()} ", "name": NAME, "age": 30},
    }
    return json.dumps({key: value for key, value in (whole | changes).items() if value is not ...}).encode()


def order(number: int) -> bytes:
    return json.dumps(
        {
            "order_id": f"canary-order-{number}",
            "created_at": "2024-03-02T00:00:00Z",
            "customer": {"email": MAIL, "name": {"first": NAME, "last": NAME}},
            "shipping": {"line1": STREET, "city": "Springfield"},
            "cart": {"total": "1.50", "items": 1},
        }
    ).encode()


def opened(number: int, **content: object) -> bytes:
    """For the spec that passes on whatever comes."""
    whole = {"type": "open", "userId": f"o{number}", "messageId": f"open-{number}", "at": 1_709_251_200_000}
    return json.dumps({**whole, **content}).encode()


def taken(event_type: str, *more: dict[str, object]) -> SpecDefinition:
    shift = {
        "messageId": "_event.id",
        "at": "_event.ordinal",
        "userId": "identity.userId",
        "type": None,
        "*": "&",
    }
    return SpecDefinition.model_validate(
        {
            "name": f"shop-{event_type}",
            "source": "segment",
            "event_type": event_type,
            "status": "active",
            "specification_type": "chain",
            "operations": [{"operation": "shift", "spec": shift}, *more],
            "id": "_event.id",
            "ordinal": "_event.ordinal",
            "identifiers": [{"type": "user_id", "path": "identity.userId", "primary": True}],
        }
    )


FAILS_HALFWAY: dict[str, object] = {
    "operation": "jmespath",
    "spec": {"identity": "identity", "when": "epoch_ms(note, '%Y%z')", "note": "note"},
}

MALFORMED = [
    b"{ " + BROKEN.encode(),
    json.dumps(BROKEN).encode(),
    json.dumps([BROKEN]).encode(),
    b'{"type": "identify", "note": "' + BROKEN.encode() + b"\xff\xfe",
    b'{"type": "identify", "note": "\\ud800' + BROKEN.encode() + b'"}',
    b'{"type": "identify", "note": ' + b"[" * 5000 + b'"' + BROKEN.encode() + b'"' + b"]" * 5000 + b"}",
    b'{"type": "identify", "note": "' + BROKEN.encode() + b"x" * 70_000 + b'"}',
    segment(1, type=...),
    segment(2, timestamp=BROKEN),
    segment(3, messageId=[BROKEN]),
    segment(4, userId={"x": BROKEN}),
    segment(5, userId=..., anonymousId=..., note=BROKEN),
    segment(9, type=[BROKEN]),
    # Clashes of shape: protected attributes that come as something else.
    segment(6, traits={"email": MAIL, "name": {"full": NAME, "nick": NAME}}),
    segment(7, traits={"email": [MAIL], "name": [NAME, {"deep": NAME}]}),
    segment(8, traits={"email": {"work": MAIL}, "name": NAME}),
    # What nobody declared.
    opened(1, contact=CONTACT, deep={"er": {"note": f"write to {CONTACT}"}}, list=[1, {"x": [TOKEN]}]),
    opened(2, misc=TOKEN, pay={"into": ACCOUNT}, seen=[{KEY: 1}]),
    opened(3, contacts={KEY: {"times": 3}}),
    opened(4, **{KEY: CONTACT}),
    opened(5, amount=10**40, huge=f"{CONTACT} " * 200),
    opened(8, messageId=f"signup-{CONTACT}"),
    # In the middle of a spec: its first operation has run.
    opened(6, type="halfway", note=HALFWAY),
    opened(7, type="halfway", note={HALFWAY: HALFWAY}),
]


@pytest.fixture(scope="module")
def own_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, str]]:
    """A service of its own, since what is discovered here would be seen elsewhere; and a reader's token."""
    folder = tmp_path_factory.mktemp("own-shop")
    with serving_shop(folder) as (shop, create):
        asked = []
        # They take the events of another spec, and do more with their values than to put them where they are protected: that
        # needs two.
        with MetadataClient(shop.url, shop.token) as client:
            for spec in (taken("halfway", FAILS_HALFWAY), taken("open")):
                with pytest.raises(ApprovalNeededError) as refused:
                    client.put_spec(spec)
                asked.append(refused.value.number)
        with MetadataClient(shop.url, create("second", Role.ADMIN)) as second:
            for number in asked:
                second.decide_change(number, is_approved=True)
        yield shop, create("reader", Role.READER)


def filled(folder: Path, shop: Shop) -> Installation:
    installation = Installation(
        folder,
        shop,
        split_bytes=20_000,
        dead_letters={"max_rate": 1.0},
        max_event_bytes=65_536,
        spark={"options": all_that_spark_reports(folder / "event-log")},
    )
    good = [segment(number) for number in range(10, 30)]
    installation.publish("segment", [*retail("segment")[:100], *MALFORMED, *good])
    installation.publish("orders", [*retail("orders")[:40], *(order(n) for n in range(20))])
    installation.publish("segment", [b"{ " + BROKEN.encode()], f"export_{FILE}.jsonl")
    torn = gzip.compress(b"".join(b"%b\n" % order(n) for n in range(50, 150)))
    (folder / "inbox" / "orders" / f"{FILE}.jsonl.gz").write_bytes(torn[: len(torn) // 2])
    return installation


def all_that_spark_reports(log: Path) -> dict[str, str]:
    """Options of somebody who has Spark keep all that it reports itself, uncompressed."""
    log.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": log.as_uri(),
        "spark.broadcast.compress": "false",
    }


ANSWERS = (
    ("export", "--provenance"),
    ("search", "--json", "--limit", "100", "identity.userId=c*"),
    ("lookup", f"email:{MAIL}"),
    ("dead-letters", "list", "--limit", "100"),
    ("attributes", "search", "--json"),
    ("erase", f"email:{MAIL}", "--dry-run"),
)
ROUTES = ("snapshot", "attributes?limit=1000", "specs", "changes?limit=1000", "discovery-defaults")


def assert_no_key(files: list[Path], keyring: Path) -> None:
    """No file but the keyring has a key-encryption key or the root secret, raw, as hex or as base64."""
    document = json.loads(keyring.read_bytes())
    keys = [base64.b64decode(text) for text in (document["root"], document["keys"][0]["key"])]
    needles = [
        lookup_key for key in keys for lookup_key in (key, key.hex().encode(), base64.b64encode(key)[:-2])
    ]
    places = [path for path in files if path.resolve() != keyring.resolve()]
    assert len(places) > 5
    assert not [path for path in places if any(lookup_key in content_of(path) for lookup_key in needles)]


def mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.lstat().st_mode)
    except FileNotFoundError:
        return 0


def open_to_others(folder: Path) -> list[str]:
    modes = {path: mode_of(path) for path in (folder, *folder.rglob("*"))}
    return [f"{path.relative_to(folder)} {mode:o}" for path, mode in modes.items() if mode & 0o077]


@pytest.mark.timeout(900)  # up to three runs and a dozen commands, on a machine that may be busy
@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_canaries_are_nowhere(tmp_path: Path, own_shop: tuple[Shop, str], is_killed: bool) -> None:
    shop, reader = own_shop
    installation = filled(tmp_path, shop)
    data = tmp_path / ".idgraph"
    service = shop.keyring.parent

    def assert_clean(*outputs: bytes) -> None:
        files = list(files_below(tmp_path, service, without=frozenset({"inbox"})))
        assert leaks(CANARIES, files, *outputs) == []
        named = files_below(tmp_path, service, without=SPARK_LISTS)
        assert leaks([FILE], named, *outputs) == []
        assert open_to_others(data) == []
        assert_no_key(files, shop.keyring)

    if is_killed:
        # The driver, the JVM and the workers, killed at once in the middle of the first micro-batch.
        process = installation.start("--until-done")
        until(lambda: process.poll() is not None or rows(data / "data-keys.db", "data_keys"), what="sealing")
        kill_tree(process)
        assert process.returncode == -signal.SIGKILL
        assert_clean()

        # Workers alone, each as soon as it is there, also when the batch is retried: Spark reports it as it likes.
        process = installation.start("--until-done", IDGRAPH_FLOW__BATCH_RETRIES="1")
        until(lambda: process.poll() is not None or kill_all(workers(process)), what="the end")
        assert process.returncode == 4
        assert_clean()

    done = installation.command("-v", "run", "--until-done", "--json")
    outputs = [done.stdout, done.stderr]
    outputs += [each for words in ANSWERS for each in _both(installation, *words)]
    dead_letters = installation.dead_letters()
    outputs += [
        json.dumps(dead_letters).encode(),
        *_both(installation, "dead-letters", "show", dead_letters[0]["id"]),
    ]
    with httpx.Client(base_url=shop.url, headers={"Authorization": f"Bearer {reader}"}) as client:
        answers = [client.get(f"/v1/{route}") for route in ROUTES]
    assert [answer.status_code for answer in answers] == [200] * len(ROUTES)
    assert_clean(*outputs, *(answer.content for answer in answers))
    assert any(path.stat().st_size for path in files_below(tmp_path / "event-log"))

    # It was all there to be leaked: who may see it does.
    reasons = {dead_letter["reason"] for dead_letter in dead_letters}
    assert reasons >= {"not_json", "too_large", "corrupt_source", "transform_failed", "sensitive_key"}
    revealed = installation.export("--reveal").decode()
    assert [each for each in (*DECLARED, *DETECTED, KEY) if each not in revealed] == []
    found = installation.command("search", "--count", f"identity.email={MAIL.title()}").stdout
    assert int(found) >= 20
    # Spark's own list of files is the one place that shows their names.
    assert leaks([FILE], files_below(data / "flows" / "shop" / "checkpoint" / "sources"))
    # What all runs on this machine share, and some run of this test has made: a start touches the one that it uses.
    archives = sorted(files_below(class_archives()), key=lambda file: file.stat().st_mtime)
    assert leaks(CANARIES, archives[-1:]) == []


def rows(file: Path, table: str) -> int:
    """How many there are by now."""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.Error:
        return 0


def kill_all(processes: list[int]) -> bool:
    """kill -9; gives that there may be more."""
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return False


def _both(installation: Installation, *words: str) -> tuple[bytes, bytes]:
    done = installation.command(*words)
    return done.stdout, done.stderr
