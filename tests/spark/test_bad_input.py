"""Law 5 end to end: what is bad is set aside with its reason, everything else flows on, nothing is lost."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, retail
from tests.undisturbed import take

pytestmark = pytest.mark.spark


def event(**changes: object) -> bytes:
    whole = {
        "type": "track",
        "event": "Search",
        "userId": "77",
        "anonymousId": "a-77",
        "messageId": "m-77",
        "timestamp": "2024-03-01T00:00:00Z",
        "platform": "web",
        "properties": {"query": "lamp"},
    }
    return json.dumps({key: value for key, value in (whole | changes).items() if value is not ...}).encode()


FUTURE = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 30 * 86400))

BAD = {
    b"{ not json": "not_json",
    b'"text"': "not_object",
    b"[1, 2]": "not_object",
    event(type=...): "missing_type",
    event(type=[1]): "wrong_type",
    event(timestamp=...): "missing_ordinal",
    event(timestamp="yesterday"): "bad_ordinal",
    event(timestamp=FUTURE): "future_ordinal",
    event(messageId=...): "missing_id",
    event(messageId={"a": 1}): "wrong_type",
    event(userId=..., anonymousId=...): "missing_identifier",
    event(userId=True): "wrong_type",
    b'{"type": "track", "x": "' + b"y" * 70_000 + b'"}': "too_large",
}


def test_every_kind_of_bad_input_among_good_events(tmp_path: Path, shop: Shop) -> None:
    good = retail("segment")[:500]
    mixed = list(good)
    for place, line in enumerate(BAD):
        mixed.insert(place * 37, line)
    installation = Installation(tmp_path / "mixed", shop, max_event_bytes=65_536, batch_retries=1)
    file = installation.publish("segment", mixed, "mixed.jsonl")
    whole = gzip.compress(b"".join(retail("amplitude")[:500]))
    inbox = installation.folder / "inbox" / "amplitude"
    inbox.mkdir()
    (inbox / "torn.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    # A file that Spark lists, and that nobody can read: to do so gives EINVAL.
    (inbox / "refused.jsonl").symlink_to("/sys/class/net/lo/speed")
    # Spark takes what is below a directory that a glob matches.
    config = installation.config.read_text()
    config = config.replace('path = "inbox/amplitude"', 'path = "inbox/amplitude"\nfollow_links = true')
    installation.config.write_text(config.replace('path = "inbox/orders"', 'path = "inbox/orders/*"'))
    (installation.folder / "inbox" / "orders" / "done").mkdir(parents=True)
    (installation.folder / "inbox" / "orders" / "done" / "a.jsonl").write_bytes(retail("orders")[0])

    (batch,) = installation.run()
    assert batch["attempts"] == 2, "what a disk refuses may pass"

    dead_letters = installation.dead_letters()
    found = {dead_letter["position"]: dead_letter["reason"] for dead_letter in dead_letters}
    lines = file.read_bytes().split(b"\n")
    expected = {f"file:segment/mixed.jsonl#{lines.index(line) + 1}": reason for line, reason in BAD.items()}
    for whole_file in ("amplitude/refused.jsonl", "orders/done/a.jsonl"):
        assert found.pop(f"file:{whole_file}#1") == "corrupt_source"
    torn = [
        dead_letter
        for dead_letter in dead_letters
        if dead_letter["position"].startswith("file:amplitude/torn")
    ]
    assert [dead_letter["reason"] for dead_letter in torn] == ["corrupt_source"]
    assert "publish it again whole" in torn[0]["detail"]
    del found[torn[0]["position"]]
    assert found == expected

    # The good ones are all there, as if the bad had never come; of the torn file what was whole.
    until = int(torn[0]["position"].rsplit("#", 1)[1]) - 1
    assert until > 50
    clean = Installation(tmp_path / "clean", shop)
    take(clean, {"segment": good, "amplitude": retail("amplitude")[:until]})
    assert installation.profiles() == clean.profiles()

    # The record is kept, sealed, and shown only when asked for.
    dead_letter = next(dead_letter for dead_letter in dead_letters if dead_letter["reason"] == "not_json")
    assert b"{ not json" not in installation.command("dead-letters", "show", dead_letter["id"]).stdout
    assert b"{ not json" in installation.command("dead-letters", "show", dead_letter["id"], "--reveal").stdout

    # The torn file retried whole completes the month.
    installation.publish("amplitude", retail("amplitude")[:500])
    take(clean, {"amplitude": retail("amplitude")[:500]})
    installation.run()
    assert installation.profiles() == clean.profiles()
