"""Dead letters in a file, beside the promises of all stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from idgraph.model.dead_letters import DeadLetter
from idgraph.model.errors import SealError, StoreError
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.database import SqliteFile
from sinks.sqlite.dead_letters import SqliteDeadLetters
from tests.contracts.test_dead_letters import dead_letter
from tests.support.memory.key_provider import FixedProvider
from tests.support.siv_reference import siv_encrypt
from transforms.privacy.dead_letter_keys import DeadLetterKeys
from transforms.privacy.record_sealing import DeadLetterSealer


def test_a_page_of_heavy_dead_letters_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred of the largest would be gigabytes."""
    read: list[int] = []
    plain = SqliteFile.read

    def noted(self: SqliteFile, work: Callable[[sqlite3.Connection], list[DeadLetter]]) -> list[DeadLetter]:
        page = plain(self, work)
        read.append(sum(len(each.payload) for each in page))
        return page

    with closing(SqliteDeadLetters(tmp_path / "letters.db")) as dead_letters:
        dead_letters.put(
            [dead_letter(f"{number:03}")._replace(payload=b"x" * (1 << 20)) for number in range(20)]
        )
        monkeypatch.setattr(SqliteFile, "read", noted)
        assert sum(1 for _ in dead_letters.scan()) == 20
    assert max(read) <= 4 << 20


def opened(folder: Path) -> SqliteDeadLetters:
    keys = DeadLetterKeys(FixedProvider(), SqliteDataKeys(folder / "dead-letters.keys.db"))
    return SqliteDeadLetters(folder / "dead-letters.db", keys)


SEALER = DeadLetterSealer(FixedProvider())


def sealed(dead_letter_id: str, **changed: Any) -> DeadLetter:
    whole = dead_letter(dead_letter_id)._replace(**changed)
    return whole._replace(payload=SEALER.seal(b"the record", dead_letter_id, whole.position))


def record(found: DeadLetter | None) -> bytes:
    assert found is not None
    return SEALER.open(found.payload, found.id, found.position)


def keys_of(folder: Path) -> int:
    with closing(SqliteDataKeys(folder / "dead-letters.keys.db")) as keys:
        return sum(keys.counts().values())


def test_a_backup_opens_nothing_that_was_dropped(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as dead_letters:
        dead_letters.put([sealed("a"), sealed("b")])
    backup = (tmp_path / "dead-letters.db").read_bytes()
    with closing(opened(tmp_path)) as dead_letters:
        dead_letters.drop(["a"])
        dead_letters.compact()
    (tmp_path / "dead-letters.db").write_bytes(backup)
    with closing(opened(tmp_path)) as dead_letters:
        with pytest.raises(SealError, match="destroyed"):
            record(dead_letters.get("a"))
        assert record(dead_letters.get("b")) == b"the record"
        assert [each.id for each in dead_letters.scan()] == ["a", "b"]
        assert dead_letters.drop(["a"]) == 1


def test_no_key_outlives_its_dead_letter(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as dead_letters:
        dead_letters.put([sealed("a"), sealed("b"), sealed("c", batch="flow/2")])
        dead_letters.put([sealed("a", attempt="two")])
        assert keys_of(tmp_path) == 3
        dead_letters.settle_batch("flow/1", "two")
        assert [each.id for each in dead_letters.scan()] == ["a", "c"]
        assert keys_of(tmp_path) == 2
        dead_letters.drop(["a", "c", "gone"])
        assert keys_of(tmp_path) == 0


def test_a_crash_between_the_two_files_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crashed(self: DeadLetterKeys, given: Sequence[Any]) -> Any:
        done(self, given)
        raise StoreError("killed here")

    with closing(opened(tmp_path)) as dead_letters:
        dead_letters.put([sealed("a")])
        for name, use in (
            ("seal", lambda: dead_letters.put([sealed("a", attempt="two"), sealed("b")])),
            ("destroy", lambda: dead_letters.drop(["a"])),
        ):
            done = getattr(DeadLetterKeys, name)
            with monkeypatch.context() as patch:
                patch.setattr(DeadLetterKeys, name, crashed)
                with pytest.raises(StoreError, match="killed"):
                    use()
            if name == "seal":
                assert record(dead_letters.get("a")) == b"the record"
                use()
                assert {record(each) for each in dead_letters.scan()} == {b"the record"}
        # It was to go, and goes as soon as somebody says so again.
        assert dead_letters.counts() == {"not_json": 2}
        assert dead_letters.drop(["a"]) == 1
        # Nor does it stop the same dead letter from being put again.
        dead_letters.put([sealed("a")])
        assert record(dead_letters.get("a")) == b"the record"


def test_dead_letters_from_before_there_were_keys_are_readable(tmp_path: Path) -> None:
    with closing(SqliteDeadLetters(tmp_path / "dead-letters.db")) as before:
        before.put([sealed("a"), sealed("b")])
    with closing(opened(tmp_path)) as dead_letters:
        dead_letters.put([sealed("b"), sealed("c")])
        assert {record(each) for each in dead_letters.scan()} == {b"the record"}
        assert keys_of(tmp_path) == 2
        dead_letters.drop(["a", "b", "c"])
        assert keys_of(tmp_path) == 0


def test_the_stored_payload_is_the_documented_one(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as dead_letters:
        dead_letters.put([sealed("a")])
    with closing(SqliteDataKeys(tmp_path / "dead-letters.keys.db")) as keys:
        wrapped = keys.get(["a"])["a"].wrapped
    key = AESSIV(FixedProvider().purpose_key("dead-letter-keys")).decrypt(wrapped, [b"\x01a"])
    with closing(SqliteDeadLetters(tmp_path / "dead-letters.db")) as stored:
        found = stored.get("a")
    assert found is not None
    assert found.payload == b"\x02" + siv_encrypt(key, sealed("a").payload, [b"\x02a"])
