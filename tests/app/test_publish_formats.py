"""`idgraph publish` and `idgraph.publish`: what becomes events of files and frames, and what is refused."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import idgraph as library
from idgraph.model import canonical
from tests.app.conftest import CommandLine


def published(idgraph: CommandLine) -> list[Any]:
    """The events of all files that were published, as JSON with its exact numbers."""
    inbox = idgraph.folder / "inbox"
    lines = [line for file in sorted(inbox.rglob("*.jsonl")) for line in file.read_bytes().splitlines()]
    return [canonical.decode(line) for line in lines]


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


PRETTY = b'{\n  "a": 1,\n  "list": [\n    {"b": 2}\n  ]\n}\n{\n  "a": 12345678901234567890.10\n}\n'


@pytest.mark.parametrize(
    ("content", "events", "form"),
    [
        (b'[{"a": 1}, {"a": null}]', [{"a": 1}, {"a": None}], "array"),
        (b'\n[\n {"a": 1},\n {"a": 0.10}\n]\n', [{"a": 1}, {"a": 0.1}], "array"),
        (b"[]", [], "array"),
        (PRETTY, [{"a": 1, "list": [{"b": 2}]}, {"a": Decimal("12345678901234567890.1")}], "several lines"),
        (b"\xef\xbb\xbfid,plz\r\n1,007\r\n2,\r\n", [{"id": "1", "plz": "007"}, {"id": "2"}], "CSV"),
        (b'id;text\n7;"a; ""b""\nc"\n', [{"id": "7", "text": 'a; "b"\nc'}], "CSV"),
        (b"id\tn\n1\t2\n\n3\t4\n", [{"id": "1", "n": "2"}, {"id": "3", "n": "4"}], "CSV"),
        (
            parquet(pa.table({"id": ["x", None], "n": [2**60, None], "t": [datetime(2024, 3, 1), None]})),
            [{"id": "x", "n": 2**60, "t": "2024-03-01T00:00:00Z"}, {}],
            "Parquet",
        ),
    ],
)
@pytest.mark.parametrize("way", ["file", "gzip", "standard input"])
def test_other_formats_are_converted_and_said_so(
    idgraph: CommandLine, content: bytes, events: list[Any], form: str, way: str
) -> None:
    given = gzip.compress(content) if way == "gzip" else content
    (idgraph.folder / "events").write_bytes(given)
    words, stdin = (["-"], given) if way == "standard input" else (["events"], None)
    result = idgraph("publish", "orders", *words, given=stdin)
    assert result.exit_code == 0, result.output
    assert published(idgraph) == events
    assert form in result.stderr
    assert f"{len(events)} event" in result.stderr


@pytest.mark.parametrize(
    "content",
    [
        b"not json\n",
        b"one,two\n",
        "id,näme\n1,x\n".encode("latin-1"),
        b"id,name\n1\n",
        b'id,name\n1,"open\n',
        b"id,id\n1,2\n",
        b"4493,ann@example.com\n4494,bob@example.com\n",
        '{"a": 1}\n'.encode("utf-16"),
        '{"a": 1}\n'.encode("utf-16-le"),
        b"[1, 2]",
        b'[{"a": 1}, 2]',
        b'[{"a": NaN}]',
        b'{\n "a": 1,\n',
        '{"name": "José"}\n'.encode("latin-1"),
        b"PK\x03\x04 and more",
        parquet(pa.table({"a": [1] * 1000}))[:-100],
        parquet(pa.table({"a": [b"\x00"]})),
        b'"text"\n17\n',
    ],
)
@pytest.mark.parametrize("pipes", [False, True])
def test_what_holds_no_events_is_refused_and_nothing_published(
    idgraph: CommandLine, content: bytes, pipes: bool
) -> None:
    (idgraph.folder / "good.jsonl").write_bytes(b'{"a":1}\n')
    (idgraph.folder / "bad").write_bytes(content)
    words = ["-"] if pipes else ["good.jsonl", "bad"]
    result = idgraph("publish", "orders", *words, given=content if pipes else None)
    assert result.exit_code == 2, result.output
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("error: ")]
    assert ("standard input" if pipes else "bad") in line
    assert "ann@" not in result.stderr
    assert published(idgraph) == []


@pytest.mark.parametrize(
    ("words", "events"),
    [
        ([], b'{"a":null,"b":{"c":null,"d":[null]}}\n'),
        (["--null", "delete"], b'{"a":null,"b":{"c":null,"d":[null]}}\n'),
        (["--null", "keep"], b'{"b":{"d":[null]}}\n'),
    ],
)
def test_null_of_json_deletes_unless_it_is_to_keep(
    idgraph: CommandLine, words: list[str], events: bytes
) -> None:
    given = b'{"a":null,"b":{"c":null,"d":[null]}}\nnull and void\n'
    assert idgraph("publish", "orders", *words, given=given).exit_code == 0
    (file,) = (idgraph.folder / "inbox" / "orders").iterdir()
    assert file.read_bytes() == events + b"null and void\n"


@pytest.mark.parametrize(
    "content", [b"id,age\n1,\n", parquet(pa.table({"id": ["1"], "age": [float("nan")]}))]
)
def test_a_missing_cell_deletes_only_if_it_is_to(idgraph: CommandLine, content: bytes) -> None:
    for words in ([], ["--null", "delete"]):
        assert idgraph("publish", "orders", *words, given=content).exit_code == 0
    assert sorted(published(idgraph), key=len) == [{"id": "1"}, {"id": "1", "age": None}]


def test_publish_names_the_file_that_it_wrote(idgraph: CommandLine) -> None:
    result = idgraph("publish", "orders", given=b'{"a":1}\n')
    (file,) = (idgraph.folder / "inbox" / "orders").iterdir()
    assert file.name in result.stderr


ZONE = timezone(timedelta(hours=2))
FRAMES: list[tuple[Callable[[], Any], list[Any]]] = [
    (lambda: pd.DataFrame({"id": ["a", "b"], "age": [28, None]}), [{"id": "a", "age": 28}, {"id": "b"}]),
    (lambda: pd.DataFrame({"n": [1.0, 2.0]}), [{"n": 1.0}, {"n": 2.0}]),
    (lambda: pd.DataFrame({"n": [0.5, float("inf"), float("nan")]}), [{"n": 0.5}, {}, {}]),
    (lambda: pd.DataFrame({"n": pd.array([2**60, None], "Int64")}), [{"n": 2**60}, {}]),
    (lambda: pd.DataFrame({"b": pd.array([True, None], "boolean")}), [{"b": True}, {}]),
    (lambda: pd.DataFrame({"c": pd.Categorical(["x", None])}), [{"c": "x"}, {}]),
    (
        lambda: pd.DataFrame({"t": [pd.Timestamp("2024-03-01T01:02:03.25"), pd.NaT]}),
        [{"t": "2024-03-01T01:02:03.250000Z"}, {}],
    ),
    (
        lambda: pd.DataFrame({"t": [pd.Timestamp("2024-03-01T02:00", tz=ZONE)]}),
        [{"t": "2024-03-01T02:00:00+02:00"}],
    ),
    (
        lambda: pd.DataFrame({"o": [{"x": float("nan"), "y": [1, None]}, None], "m": [1, "1"]}),
        [{"o": {"y": [1, None]}, "m": 1}, {"m": "1"}],
    ),
    (lambda: pd.DataFrame({"a": [1]}, index=pd.Index([9], name="user")), [{"a": 1}]),
    (lambda: pa.table({"n": pa.array([3.0, None]), "d": [date(2024, 3, 1), None]}), [{"n": 3, "d": "2024-03-01"}, {}]),
    (lambda: pa.table({"s": [{"x": None, "y": 1}], "l": [[1, 2]]}), [{"s": {"y": 1}, "l": [1, 2]}]),
    (lambda: pa.table({"n": pa.array([2.0**60, None])}), [{"n": 2.0**60}, {}]),
    (lambda: pa.table({"t": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC"))}), [{"t": "2023-11-14T22:13:20.123456Z"}]),
    (lambda: [{"id": "a", "age": 28.0}, {"id": "b", "age": float("nan")}, {"id": "c"}], [{"id": "a", "age": 28}, {"id": "b"}, {"id": "c"}]),
    (lambda: [{"at": datetime(2024, 3, 1, tzinfo=UTC), "d": Decimal("0.10"), "u": uuid.UUID(int=7)}], [{"at": "2024-03-01T00:00:00Z", "d": 0.1, "u": str(uuid.UUID(int=7))}]),
    (lambda: [{"v": pd.Series([1, 2]).to_numpy()[0], "t": pd.Series([pd.Timestamp("2024-03-01")]).to_numpy()[0]}], [{"v": 1, "t": "2024-03-01T00:00:00Z"}]),
    (lambda: [], []),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "events"), FRAMES)
def test_a_frame_is_published_without_what_is_missing(
    idgraph: CommandLine, frame: Callable[[], Any], events: list[Any]
) -> None:
    assert library.publish(frame(), source="orders", config=idgraph.folder) == len(events)
    found = published(idgraph)
    assert [json.dumps(each, default=str) for each in found] == [json.dumps(each) for each in events]


def test_a_frame_can_delete_what_is_missing(idgraph: CommandLine) -> None:
    frame = pd.DataFrame({"id": ["a"], "age": [float("nan")]})
    assert library.publish(frame, "orders", idgraph.folder / "idgraph.toml", null="delete") == 1
    assert published(idgraph) == [{"id": "a", "age": None}]


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        {"id": "a"},
        [{"id": "a"}, "b"],
        [{"id": {1, 2}}],
        [{"id": b"raw"}],
        [{1: "a"}],
        [{"o": {1: 2}}],
        pd.DataFrame({0: [1]}),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"d": [timedelta(1)]}),
        pd.Series([1]),
        pa.table({"b": [b"raw"]}),
    ],
)
def test_what_cannot_be_events_is_refused_before_anything_is_published(
    idgraph: CommandLine, wrong: Any
) -> None:
    with pytest.raises(library.ConfigError):
        library.publish(wrong, source="orders", config=idgraph.folder)
    with pytest.raises(library.ConfigError, match="orders"):
        library.publish([{"a": 1}], source="oders", config=idgraph.folder)
    assert published(idgraph) == []
