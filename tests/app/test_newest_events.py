"""The newest events of a source over HTTP: read from its files again, and masked as dead letters are."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import newest_records
from idgraph.app.dead_letter_desk import dead_letter_desk
from idgraph.model.errors import SourceUnavailableError
from idgraph.model.sources import DecryptorConfig, FileSource
from tests.app.test_dead_letter_routes import Desk, desk
from tests.profile_service.api.conftest import problem
from tests.retail import order, records, snapshot
from tests.servers.decryption_service import decryption_service, dripping, encrypted, status

pytestmark = pytest.mark.slow


__all__ = ["desk"]

PATH = "/v1/sources/orders/events"


@pytest.fixture
def inbox(desk: Desk) -> Path:
    source = desk.idgraph.settings().sources_by_name()["orders"]
    assert isinstance(source, FileSource)
    shutil.rmtree(source.path, ignore_errors=True)
    source.path.mkdir(parents=True)
    return source.path


def write(file: Path, *numbers: int, age: float = 0, before: bytes = b"") -> None:
    content = before + b"".join(
        order(n, n, type="refund" if n % 2 else "order").value + b"\n" for n in numbers
    )
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    then = file.stat().st_mtime - age
    os.utime(file, (then, then))


def ids(desk: Desk, **wanted: Any) -> list[str]:
    answer = desk.operator.get(PATH, params=wanted)
    assert answer.status_code == 200, answer.text
    return [each["payload"]["order_id"] for each in answer.json()["items"]]


def test_the_newest_come_first_from_the_newest_files(desk: Desk, inbox: Path) -> None:
    write(inbox / "a.jsonl", 1, 2, age=100)
    write(inbox / "b.jsonl.gz", 3, 4, age=50)
    write(inbox / "c.jsonl", 5)
    expected = [json.loads(order(n, n).value)["order_id"] for n in (5, 4, 3, 2, 1)]
    assert ids(desk, limit=50) == expected
    assert ids(desk, limit=2) == expected[:2]
    (inbox / "c.jsonl").unlink()
    (inbox / "c.jsonl").symlink_to("/etc/passwd")
    assert ids(desk, limit=50) == expected[1:], "a link is followed no more than by the flow"


def test_of_a_large_file_the_end_is_read(desk: Desk, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_records, "MOST_BYTES", 4000)
    write(inbox / "a.jsonl", *range(100))
    found = ids(desk, limit=50)
    assert found[0] == json.loads(order(99, 99).value)["order_id"]
    assert 1 < len(found) < 50


def test_an_event_is_shown_as_policy_and_clearance_allow(desk: Desk, inbox: Path) -> None:
    write(inbox / "a.jsonl", 1, before=b"{\n")
    bad, good = reversed(desk.operator.get(PATH).json()["items"])
    assert good["spec"] == "shop-orders@1"
    assert good["payload"]["customer"]["email"] == {"$protected": True, "type": "text"}
    assert good["becomes"]["/customer/email"] == ["identity.email"]
    assert (bad["type"], bad["spec"], bad["payload"]) == (None, None, None)
    (low, _) = desk.low.get(PATH).json()["items"]
    assert "email" not in low["payload"]["customer"]


def test_an_event_leads_to_its_profile_for_those_who_see_its_identifiers(desk: Desk, inbox: Path) -> None:
    stored = json.loads(next(each for each in records(60) if each.source == "orders").value)
    stored["cart"].pop("id")  # Its other identifier, which everybody sees.
    (inbox / "a.jsonl").write_bytes(order(9999, 9999).value + b"\n" + json.dumps(stored).encode() + b"\n")
    known, stranger = desk.operator.get(PATH).json()["items"]
    assert stranger["profile"] is None
    found = desk.operator.get(f"/v1/profiles/{known['profile']}").json()
    assert found["id"] == known["profile"]
    assert [each["profile"] for each in desk.low.get(PATH).json()["items"]] == [None, None]
    assert all("identifiers" not in each for each in (known, stranger))


def test_encrypted_events_are_decrypted_and_masked(desk: Desk, inbox: Path) -> None:
    plain = [order(n, n).value for n in (1, 2)]
    (inbox / "a.jsonl").write_bytes(b"".join(encrypted(each) + b"\n" for each in plain))
    with decryption_service() as (url, service):
        settings = desk.idgraph.settings()
        decryptor = DecryptorConfig(url=url, retries=0, on_failure="dead_letter")
        sources = [each.model_copy(update={"decryptor": decryptor}) for each in settings.sources]
        with dead_letter_desk(settings.model_copy(update={"sources": sources})) as opened:

            def shown() -> list[Any]:
                return opened.newest_events("orders", 5, snapshot(), "v1", lambda _: True) or []

            found = shown()
            assert [each.payload["order_id"] for each in found] == [
                json.loads(each)["order_id"] for each in reversed(plain)
            ]
            assert found[0].payload["customer"]["email"] == {"$protected": True, "type": "text"}
            service.always = status(400)
            assert shown() == [], "what is refused for good is left out"
            service.always = status(503)
            with pytest.raises(SourceUnavailableError):
                shown()


def test_a_decryption_service_that_hangs_is_soon_given_up(desk: Desk, inbox: Path) -> None:
    """Found by review: each poll of a page kept a thread for half a minute."""
    (inbox / "a.jsonl").write_bytes(b"".join(encrypted(order(n, n).value) + b"\n" for n in range(100)))
    with decryption_service() as (url, service):
        settings = desk.idgraph.settings()
        decryptor = DecryptorConfig(url=url, timeout_seconds=3600, capacity=200)
        source = settings.sources_by_name()["orders"].model_copy(update={"decryptor": decryptor})
        assert len(newest_records.newest_records(settings, source, 200)) == 20
        service.positions.clear()
        service.always = dripping
        with pytest.raises(SourceUnavailableError, match="failed 1 times, at last: no answer within 2 s"):
            newest_records.newest_records(settings, source, 200)
        assert len(service.positions) == 20, "none is asked for again"


def test_only_operators_ask_and_only_for_sources_that_there_are(desk: Desk, inbox: Path) -> None:
    write(inbox / "a.jsonl", 1)
    problem(desk.reader.get(PATH), 403)
    problem(desk.operator.get("/v1/sources/none/events"), 404)
    assert ids(desk, event_type="none") == []
