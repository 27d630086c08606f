"""Nothing that an event brings steers the terminal of who looks at it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.files import write_atomically
from idgraph.model import canonical, paths
from idgraph.model.attributes import DataType
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.text import escape_control_chars, visible_lines
from tests.app.conftest import CommandLine
from tests.retail import UNDETECTED, Pipeline, durable_keys, raw, snapshot, spec

ROOT = Path(__file__).parents[2]

HOSTILE = "\x1b[31mred\x1b]0;t\x07\r\nnext\x7f\x9b2J\u202ecod\u2028\u2066"
SHOWN = r"\u001b[31mred\u001b]0;t\u0007\u000d\u000anext\u007f\u009b2J\u202ecod\u2028\u2066"
NAMED = r"[31mred]0;t\u000d\u000anext2Jcod"
"""As a value of an identifier, which has no invisible characters."""
RAW = sorted(set(HOSTILE) - set("[31mred]0;tnext2Jco\n"))


def assert_tame(output: str) -> None:
    assert [character for character in RAW if character in output] == []


@pytest.mark.parametrize(
    ("text", "one_line", "lines"),
    [
        ("plain, ärger, 日本, 🙂, e\u0301, \\", *["plain, ärger, 日本, 🙂, e\u0301, \\"] * 2),
        ("a\n\tb", r"a\u000a\u0009b", "a\n\tb"),
        (
            "a\r\x00\x7f\x80\x9f\xa0b",
            "a\\u000d\\u0000\\u007f\\u0080\\u009f\xa0b",
            "a\\u000d\\u0000\\u007f\\u0080\\u009f\xa0b",
        ),
        ("\u061c\u200e\u200f\u202a\u202e\u2066\u2069", *[r"\u061c\u200e\u200f\u202a\u202e\u2066\u2069"] * 2),
        ("\u2028\u2029\ud800", *[r"\u2028\u2029\ud800"] * 2),
    ],
)
def test_what_steers_is_shown(text: str, one_line: str, lines: str) -> None:
    assert (escape_control_chars(text), visible_lines(text)) == (one_line, lines)


@pytest.fixture
def hostile(with_keys: CommandLine) -> CommandLine:
    """A profile whose identifier, event id, keys and values are hostile, one of them markup; and large numbers."""
    settings = with_keys.settings()
    document = spec(
        "orders",
        specification_type="jolt",
        operations=[{"operation": "shift", "spec": {"*": "&"}}],
        id="id",
        ordinal="at",
        identifiers=[{"type": "user", "path": "user", "primary": True}],
    )
    known = snapshot(specs=[document], declared=[], defaults=UNDETECTED)
    content = {
        "id": HOSTILE,
        "at": 1,
        "user": HOSTILE,
        HOSTILE: {HOSTILE: HOSTILE},
        "mark": "[bold]:warning:[/]",
    }
    body = canonical.encode(
        {**content, "huge": Decimal("1E+400"), "exact": Decimal("0.12345678901234567890123")}
    )
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=known)
        assert pipeline.process([raw(body)]) is not None
        pipeline.data_keys.close()
    write_atomically(
        metadata_access.snapshot_file(settings),
        json.dumps({"etag": '"1"', "snapshot": known.model_dump(mode="json")}).encode(),
    )
    return with_keys


@pytest.mark.parametrize("words", [["lookup", f"user:{HOSTILE}"], ["search"]])
def test_the_tree_shows_what_steers(words: list[str], hostile: CommandLine) -> None:
    result = hostile(*words)
    assert result.exit_code == 0, result.output
    assert_tame(result.output)
    lines = [line.strip("│├└─ ") for line in result.stdout.splitlines()]
    assert lines[:3] == [f"user:{NAMED}", "identifiers", f"user:{NAMED}"]
    assert SHOWN in lines  # the key of an object, in a line of its own
    assert any(line.startswith(f'{SHOWN}: "\\u001b[31m') for line in lines)
    assert any(line.startswith('mark: "[bold]:warning:[/]"') for line in lines)


@pytest.mark.parametrize("words", [["lookup", f"user:{HOSTILE}", "--json"], ["search", "--json"]])
def test_json_holds_the_same_text_and_every_digit(words: list[str], hostile: CommandLine) -> None:
    result = hostile(*words)
    assert_tame(result.output)
    (found,) = map(canonical.decode, result.stdout.splitlines())
    attributes = found["attributes"]
    assert attributes[HOSTILE] == {HOSTILE: HOSTILE}
    assert (attributes["huge"], attributes["exact"]) == (
        Decimal("1E+400"),
        Decimal("0.12345678901234567890123"),
    )
    # An export is the same bytes as ever: `cmp` compares them.
    assert hostile("export", "--provenance").stdout_bytes == canonical.encode(found) + b"\n"


def test_the_tree_shows_large_numbers_as_numbers(hostile: CommandLine) -> None:
    tree = hostile("search").stdout
    assert "huge: 1E+400 " in tree
    assert "exact: 0.12345678901234567890123 " in tree


def test_an_export_to_a_terminal_does_not_steer_it(hostile: CommandLine) -> None:
    ours, theirs = pty.openpty()
    config = hostile.folder / "idgraph.toml"
    process = subprocess.Popen(
        [sys.executable, "-m", "idgraph.app.cli", "-c", config, "export"], stdout=theirs, cwd=ROOT
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how Linux reports that the other side is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    assert_tame(shown.decode().removesuffix("\r\n"))
    assert json.loads(shown)["attributes"][HOSTILE] == {HOSTILE: HOSTILE}


def test_the_catalogue_shows_what_steers(served: CommandLine) -> None:
    path = f"a.{paths.escape(HOSTILE)}"
    with metadata_access.metadata_client(served.settings()) as client:
        change = SchemaChange(path=path, data_type=DataType.STRING, source=HOSTILE, first_event=HOSTILE)
        assert client.send([change]) == []
    for words in (["search"], ["search", "--json"], ["show", path]):
        result = served("attributes", *words)
        assert result.exit_code == 0, result.output
        assert_tame(result.output)
        assert "u001b[31mred" in result.stdout


def test_a_trace_shows_what_steers(idgraph: CommandLine) -> None:
    file = idgraph.folder / "spec.json"
    file.write_text(json.dumps({"operation": "shift", "spec": {"*": "&"}}))
    for words in (["--reveal-values"], []):
        result = idgraph("map", file, "--trace", *words, given=canonical.encode({HOSTILE: HOSTILE}))
        assert result.exit_code == 0, result.output
        assert_tame(result.output)
        assert f"= {SHOWN}: " in result.stdout
