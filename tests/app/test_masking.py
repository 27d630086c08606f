"""Commands show no value of payloads unless it was asked for."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import CommandLine
from tests.canaries import seen

VALUE = "canary-value-4711-é"
MAIL = "canary.mask@example.com"
NUMBER = "748159263"
CANARIES = (VALUE, MAIL, NUMBER)

PAYLOAD: dict[str, Any] = {
    "note": VALUE,
    "list": [VALUE, {"deep": int(NUMBER)}],
    "contacts": {MAIL: {"times": 1}, "other.canary.mask@example.com": VALUE},
    "user": {"mail": MAIL, "age": int(NUMBER)},
}
LINES = [
    json.dumps(PAYLOAD).encode(),
    b'{"note": "' + VALUE.encode(),
    b'{"note": "\\ud800' + VALUE.encode() + b'"}',
    VALUE.encode(),
    json.dumps([VALUE]).encode(),
    b'{"x": ' + b"[" * 700 + json.dumps(VALUE).encode() + b"]" * 700 + b"}",
    b'{"x": ' + b"[" * 3000 + json.dumps(VALUE).encode() + b"]" * 3000 + b"}",
]
CHAINS: dict[str, Any] = {
    "shift": {"operation": "shift", "spec": {"*": "&", "contacts": {"*": {"$": "who[]"}}}},
    "default": {"operation": "default", "spec": {"more": 1, "contacts": {"*": {"seen": True}}}},
    "remove": {"operation": "remove", "spec": {"note": ""}},
    "sort": {"operation": "sort"},
    "cardinality": {"operation": "cardinality", "spec": {"list": "ONE"}},
    "modify": {"operation": "modify-overwrite-beta", "spec": {"note": "=toUpper(@(1,user.mail))"}},
    "time": {"operation": "modify-overwrite-beta", "spec": {"user": {"mail": "=epochMs"}}},
    "jmespath": {"operation": "jmespath", "spec": {"when": "epoch_ms(note)"}},
    "wrong type": {"operation": "jmespath", "spec": {"when": "epoch_ms(list)"}},
    "key": {"operation": "shift", "spec": {"note": "by.@(1,note)"}},
    "keys of others": {"operation": "shift", "spec": {"user": {"*": "by.@(1,age).&"}}},
    "split": {"operation": "modify-overwrite-beta", "spec": {"x": "=split(@(1,note),@(1,user.mail))"}},
}


@pytest.fixture
def payloads(tmp_path: Path) -> Path:
    file = tmp_path / "payloads.jsonl"
    file.write_bytes(b"\n".join(LINES) + b"\n")
    return file


def spec_file(folder: Path, chain: Any) -> Path:
    file = folder / "spec.json"
    file.write_text(json.dumps([chain]))
    return file


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("words", [("--trace",), ("--trace", "--json")])
def test_a_trace_shows_kinds_in_place_of_values(
    idgraph: CommandLine, payloads: Path, tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    done = idgraph("map", spec_file(tmp_path, CHAINS[name]), payloads, *words)
    assert seen(done.stdout_bytes + done.stderr_bytes, CANARIES) == []
    assert b"line 2" in done.output_bytes or b'"line":2' in done.output_bytes


@pytest.mark.parametrize("name", CHAINS)
def test_what_cannot_be_mapped_is_not_quoted(
    idgraph: CommandLine, payloads: Path, tmp_path: Path, name: str
) -> None:
    done = idgraph("map", spec_file(tmp_path, CHAINS[name]), payloads)
    assert done.exit_code == 1
    assert seen(done.stderr_bytes, CANARIES) == []


def test_who_asks_sees(idgraph: CommandLine, payloads: Path, tmp_path: Path) -> None:
    done = idgraph("map", spec_file(tmp_path, CHAINS["sort"]), payloads, "--trace", "--reveal-values")
    assert seen(done.stdout_bytes, CANARIES) == []
    done = idgraph("map", spec_file(tmp_path, CHAINS["shift"]), payloads, "--trace", "--reveal-values")
    assert seen(done.stdout_bytes, CANARIES) == list(CANARIES)


def test_a_damaged_file_is_not_quoted(idgraph: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "payloads.jsonl.gz"
    file.write_bytes(gzip.compress(b"\n".join(LINES))[:-30])
    done = idgraph("map", spec_file(tmp_path, CHAINS["sort"]), file, "--trace")
    assert seen(done.stdout_bytes + done.stderr_bytes, CANARIES) == []


@pytest.mark.parametrize("file", ["payloads", "spec"])
def test_check_reports_places(idgraph: CommandLine, payloads: Path, tmp_path: Path, file: str) -> None:
    checked = payloads if file == "payloads" else spec_file(tmp_path, {"operation": "shift", "spec": PAYLOAD})
    done = idgraph("check", checked)
    assert done.exit_code == 1
    assert VALUE not in done.output
