"""Law 3 end to end: plaintext that policy protects is in no file that the system wrote and in no message,
also after crashes and for events that failed half-way."""

from __future__ import annotations

import base64
import gzip
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, kill_tree, retail, until

pytestmark = pytest.mark.spark

MAIL = "canary.kahuna@example.com"
NAME = "Kanarienvogel Zitronengelb"
STREET = "4711 Canaryrow Boulevard"
BROKEN = "canary-in-a-broken-event"
CANARIES = (MAIL, NAME, STREET, BROKEN)


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
            "cart": {"id": "cart", "total": "1.50", "items": 1},
        }
    ).encode()


def shapes(text: str) -> Iterator[bytes]:
    """How a plaintext may stand in a file."""
    for spelling in {text, text.lower(), text.upper()}:
        raw = spelling.encode()
        yield raw
        yield raw.hex().encode()
        yield raw.hex().upper().encode()
        yield spelling.encode("utf-16-le")
        yield spelling.encode("utf-16-be")
        yield json.dumps(spelling).strip('"').encode()
        # Base64 has three alignments; the middle of each is the same whatever stands around it.
        for lead in range(3):
            encoded = base64.b64encode(b"x" * lead + raw + b"x" * 3)
            yield encoded[4 : len(encoded) - 8]


def written(installation: Installation) -> Iterator[tuple[Path, bytes]]:
    """Every file that the system wrote: all but the inbox, which is the source's own."""
    for path in installation.folder.rglob("*"):
        if path.is_file() and "inbox" not in path.relative_to(installation.folder).parts:
            content = path.read_bytes()
            yield path, content
            if content[:2] == b"\x1f\x8b":
                yield path, gzip.decompress(content)


def seen(content: bytes) -> list[bytes]:
    """The canaries' shapes that stand in some bytes."""
    return [shape for canary in CANARIES for shape in shapes(canary) if shape in content]


def assert_no_key(installation: Installation, keyring: Path) -> None:
    """No file but the keyring has a key-encryption key or the root secret, raw, as hex or as base64."""
    document = json.loads(keyring.read_bytes())
    keys = [base64.b64decode(text) for text in (document["root"], document["keys"][0]["key"])]
    needles = [needle for key in keys for needle in (key, key.hex().encode(), base64.b64encode(key)[:-2])]
    places = [
        (path, content) for path, content in written(installation) if path.resolve() != keyring.resolve()
    ]
    assert len(places) > 5
    assert not [str(path) for path, content in places if any(needle in content for needle in needles)]


def assert_no_canary(installation: Installation, *outputs: bytes) -> None:
    places = [*written(installation), *((Path(f"output {n}"), output) for n, output in enumerate(outputs))]
    assert not [(str(path), needles) for path, content in places if (needles := seen(content))]


@pytest.mark.parametrize("canary", CANARIES)
def test_a_leak_would_be_seen(canary: str) -> None:
    for leak in (
        canary.encode(),
        canary.encode("utf-16-le"),
        b"  " + canary.encode().hex().encode(),
        base64.b64encode(b'{"a":"' + canary.encode() + b'"}'),
        base64.b64encode(b'{"ab":"' + canary.encode() + b'"}'),
        base64.b64encode(b'{"abc":"' + canary.encode() + b'"}'),
    ):
        assert seen(leak)


def test_canaries_are_nowhere(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop, split_bytes=20_000, dead_letters={"max_rate": 1.0})
    bad = [
        b"{ " + BROKEN.encode(),
        json.dumps(BROKEN).encode(),
        segment(1, type=...),
        segment(2, timestamp=BROKEN),
        segment(3, messageId=[BROKEN]),
        segment(4, userId={"x": BROKEN}),
        segment(5, userId=..., anonymousId=..., note=BROKEN),
        # Clashes of shape: protected attributes that come as something else.
        segment(6, traits={"email": MAIL, "name": {"full": NAME, "nick": NAME}}),
        segment(7, traits={"email": [MAIL], "name": [NAME, {"deep": NAME}]}),
        segment(8, traits={"email": {"work": MAIL}, "name": NAME}),
    ]
    installation.publish("segment", [*retail("segment")[:300], *bad, *(segment(n) for n in range(10, 30))])
    installation.publish("orders", [*retail("orders")[:100], *(order(n) for n in range(20))])

    process = installation.start("--until-done")
    database = installation.folder / ".idgraph" / "profiles.db"
    until(lambda: process.poll() is not None or database.exists(), what="the first write")
    kill_tree(process)
    assert_no_canary(installation)
    done = installation.command("run", "--until-done", "--json")
    outputs = [done.stdout, done.stderr]
    outputs += [
        installation.command(*words).stdout
        for words in (
            ("export", "--provenance"),
            ("search", "--json", "--limit", "100", "identity.userId=c*"),
            ("lookup", "user_id:c10"),
            ("lookup", "--json", f"email:{MAIL}"),
            ("dead-letters", "list", "--limit", "100"),
            ("dead-letters", "list", "--json", "--limit", "100"),
        )
    ]
    assert_no_canary(installation, *outputs)
    assert len(installation.dead_letters()) >= 7

    assert_no_key(installation, shop.keyring)

    # It was all there to be leaked: who may see it does.
    for identifier, expected in (("user_id:c10", NAME), ("user_id:c10", MAIL), (f"email:{MAIL}", STREET)):
        revealed = installation.command("lookup", "--reveal", "--json", identifier).stdout.decode()
        assert expected in revealed
    found = installation.command("search", "--count", f"identity.email={MAIL.title()}").stdout
    assert int(found) >= 20


def test_what_is_written_is_for_its_owner_only(tmp_path: Path, shop: Shop) -> None:
    installation = Installation(tmp_path, shop)
    installation.publish("segment", [segment(1), b"not json"])
    installation.run()
    open_to_others = [
        str(path.relative_to(installation.folder))
        for path in (installation.folder / ".idgraph").rglob("*")
        # Spark writes its checkpoint with the umask; the folder above lets nobody else in.
        if path.is_file() and path.stat().st_mode & 0o077 and "checkpoint" not in path.parts
    ]
    assert open_to_others == []
    assert not stat.S_IMODE((installation.folder / ".idgraph").stat().st_mode) & 0o077
