"""Tables of profiles: the catalogue decides the columns, and no value is lost or altered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata
from idgraph.model.errors import ConfigError, QueryError
from profile_service.reader import ProfileReader
from profile_service.tables import ID, IDENTIFIERS, PROTECTED, REST, TIME, Columns, data_frame, write_parquet
from tests.retail import CREATED, UNDETECTED, Pipeline, attribute, raw, snapshot, spec

INT, FLOAT, TEXT, BOOL, TEXTS = pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.list_(pa.string())
SPEC = spec(
    "orders",
    id="_event.id",
    ordinal="_event.ordinal",
    operations=[
        {
            "operation": "shift",
            "spec": {
                "id": "_event.id",
                "at": "_event.ordinal",
                "card": "who.card",
                "mail": "who.mail",
                "v": "v",
            },
        }
    ],
    identifiers=[
        {"type": "card", "path": "who.card", "primary": True},
        {"type": "email", "path": "who.mail"},
    ],
)


def conflict(data_type: str) -> dict[str, Any]:
    return {"data_type": data_type, "source": "orders", "first_event": "x", "first_seen": CREATED}


def discovered(path: str, first: str, *others: str) -> AttributeMetadata:
    return attribute(path, first, status="discovered", conflicts=[conflict(each) for each in others])


def pipeline(folder: Path, declared: Sequence[AttributeMetadata], values: Iterable[Any] = ()) -> Pipeline:
    """With a person for each of these values of `v`, by their cards 1, 2, …"""
    known = snapshot(specs=[SPEC], declared=declared, defaults=UNDETECTED)
    made = Pipeline(folder, snapshot=known)
    events = [
        b'{"id":"%d","at":"2024-03-01T00:00:00Z","card":"%d","v":%b}'
        % (number, number, value if isinstance(value, bytes) else canonical.encode(value))
        for number, value in enumerate(values, 1)
    ]
    made.process(raw(each, line) for line, each in enumerate(events, 1))
    assert made.store.count() == len(events)
    return made


def in_rows(reader: ProfileReader) -> list[Any]:
    return sorted(reader.scan(), key=lambda each: int(each.id.partition(":")[2]))


def parquet(folder: Path, reader: ProfileReader, columns: Columns, partition: str | None = None) -> pa.Table:
    write_parquet(folder, in_rows(reader), columns, partition)
    return ds.dataset(folder, partitioning="hive").to_table()


@pytest.mark.parametrize(
    ("known", "values", "kind", "column", "rest"),
    [
        (discovered("v", "integer", "string"), [41, "forty-one", -7], INT, [41, None, -7], {2: "forty-one"}),
        (discovered("v", "string", "integer"), ["x", 7], TEXT, ["x", None], {2: 7}),
        (discovered("v", "integer", "number"), [1, 0.5, 2], FLOAT, [1.0, 0.5, 2.0], {}),
        (discovered("v", "integer", "boolean", "number"), [True, 3], FLOAT, [None, 3.0], {1: True}),
        (discovered("v", "boolean", "integer"), [True, 1, False], BOOL, [True, None, False], {2: 1}),
        (discovered("v", "number"), [2, 2.25], FLOAT, [2.0, 2.25], {}),
        (attribute("v", "integer", conflicts=[conflict("number")]), [3.5, 39.0], INT, [None, 39], {1: 3.5}),
        (attribute("v", "number"), [2**53, 2**53 + 1], FLOAT, [float(2**53), None], {2: 2**53 + 1}),
        (attribute("v", "number"), [-(2**60), 1e300], FLOAT, [None, 1e300], {1: -(2**60)}),
        (attribute("v", "integer"), [2**63, -(2**63)], INT, [None, -(2**63)], {1: 2**63}),
        (attribute("v", "integer"), [10**40], INT, [None], {1: 10**40}),
        (attribute("v", "array"), [["a", 1, None], "b"], TEXTS, [["a", "1", None], None], {2: "b"}),
        (attribute("v", "array"), [[], [[1, {"k": True}]]], TEXTS, [[], ['[1,{"k":true}]']], {}),
        (attribute("v", "string", policy="append"), ["a"], TEXTS, [["a"]], {}),
        (attribute("v", "string", policy="count"), ["a"], INT, [1], {}),
        (discovered("v", "string", "object"), ["leaf", {"below": 1}], TEXT, ["leaf", None], {}),
    ],
)
def test_the_catalogue_decides_a_column_and_the_rest_has_what_it_cannot_hold(
    tmp_path: Path, known: AttributeMetadata, values: list[Any], kind: Any, column: Any, rest: dict[int, Any]
) -> None:
    reader = pipeline(tmp_path, [known], values).reader()
    columns = Columns(reader, ["v"])
    table = columns.table(in_rows(reader))
    assert table.schema.equals(Columns(pipeline(tmp_path, [known]).reader(), ["v"]).table([]).schema)
    assert table.column_names == [ID, IDENTIFIERS, "v", REST]
    assert table.schema.field("v").type == kind
    assert table.column("v").to_pylist() == column
    found = {row: json.loads(each) for row, each in enumerate(table.column(REST).to_pylist(), 1) if each}
    assert found == {row: {"v": value} for row, value in rest.items()}
    assert columns.other == ({"v": len(rest)} if rest else {})
    assert [line.startswith("v:") for line in columns.report()] == [True] * bool(rest)
    written = parquet(tmp_path / "out", reader, Columns(reader, ["v"]))
    assert written.schema.equals(table.schema)
    assert written.to_pylist() == table.to_pylist()
    frame = data_frame(table)
    assert data_frame(table.slice(0, 0)).dtypes.equals(frame.dtypes)


@pytest.mark.parametrize(
    "text",
    [b"1e400", b"0.1000000000000000000000001", b"9007199254740993.0", b"123456789012345678901234567890.5"],
)
def test_a_number_that_no_double_is_stays_exact(tmp_path: Path, text: bytes) -> None:
    reader = pipeline(tmp_path, [attribute("v", "number")], [text]).reader()
    (row,) = Columns(reader).table(in_rows(reader)).to_pylist()
    assert row["v"] is None
    assert canonical.decode(row[REST])["v"] == canonical.decode(text)


def test_named_columns_are_there_and_nothing_else(tmp_path: Path) -> None:
    known = [discovered("v.a", "string", "integer"), discovered("v.b", "string"), discovered("v.c", "string")]
    values = [{"a": "x", "b": "hidden", "new": "hidden"}, {"a": 7, "c": 8}]
    reader = pipeline(tmp_path, known, values).reader()
    table = Columns(reader, ["v.b", "v.a"]).table(in_rows(reader))
    assert table.column_names == [ID, IDENTIFIERS, "v.b", "v.a", REST]
    assert table.column(REST).to_pylist() == [None, '{"v.a":7}']
    assert "hidden" not in str(Columns(reader, "v.a").table(in_rows(reader)).to_pylist())
    whole = Columns(reader).table(in_rows(reader))
    assert whole.column_names == [ID, IDENTIFIERS, "v.a", "v.b", "v.c", REST]
    first, second = (json.loads(each) for each in whole.column(REST).to_pylist())
    assert (first["v.new"], second["v.a"], second["v.c"]) == ("hidden", 7, 8)


def test_an_attribute_called_as_a_column_of_ours_is_in_the_rest(tmp_path: Path) -> None:
    own = spec(
        "orders",
        **SPEC.model_dump(include={"id", "ordinal", "identifiers"})
        | {
            "operations": [
                {
                    "operation": "shift",
                    "spec": {
                        "id": "_event.id",
                        "at": "_event.ordinal",
                        "card": ["who.card", "card"],
                        "v": "_id",
                    },
                }
            ]
        },
    )
    known = snapshot(specs=[own], declared=[attribute("_id"), attribute("card")], defaults=UNDETECTED)
    made = Pipeline(tmp_path, snapshot=known)
    made.process([raw({"id": "1", "at": "2024-03-01T00:00:00Z", "card": "1", "v": "mine"})])
    reader = made.reader()
    (row,) = Columns(reader, key="card").table(reader.scan()).to_pylist()
    assert (row[ID], row["card"]) == ("card:1", "1")
    assert json.loads(row[REST]) == {"_id": "mine", "card": "1", "who.card": "1"}
    for wanted, key in (["_id"], None), (["card"], "card"):
        with pytest.raises(QueryError, match="another column"):
            Columns(reader, wanted, key)


def test_a_key_is_one_identifier_of_each_profile(tmp_path: Path) -> None:
    made = pipeline(tmp_path, [])
    made.process(
        raw({"id": str(n), "at": f"2024-03-01T00:00:0{n}Z", "card": card, "mail": mail}, n)
        for n, (card, mail) in enumerate(
            [("9", "a@x.org"), ("1", "a@x.org"), ("1", "0@x.org"), ("5", None)], 1
        )
    )
    reader = made.reader()
    columns = Columns(reader, [], "card")
    rows = {row[ID]: row["card"] for row in columns.table(reader.scan()).to_pylist()}
    assert rows == {"card:9": "9", "card:5": "5"}
    assert columns.several == 1
    mails = {row[ID]: row["email"] for row in Columns(reader, [], "email").table(reader.scan()).to_pylist()}
    assert mails == {"card:9": "0@x.org", "card:5": None}
    with pytest.raises(QueryError, match="card"):
        Columns(reader, [], "crad")


@pytest.mark.parametrize(
    ("wanted", "near"),
    [(["v.agee"], "v.age"), ("age", "v.age"), ("v.age,v.age", "v.age"), ("", "no attribute")],
)
def test_an_unknown_column_is_an_error_with_the_nearest(tmp_path: Path, wanted: Any, near: str) -> None:
    reader = pipeline(tmp_path, [attribute("v.age", "integer")]).reader()
    with pytest.raises(QueryError, match=near):
        Columns(reader, wanted)


def test_what_policy_protects_says_so_whatever_is_there(tmp_path: Path) -> None:
    sealed = attribute("v", classification="restricted", encryption="protected", indexable=False)
    for values in ([], ["secret"]):
        reader = pipeline(tmp_path, [sealed], values).reader()
        table = Columns(reader).table(reader.scan())
        assert table.schema.field("v").metadata == PROTECTED
        assert table.column("v").to_pylist() == [None] * len(values)
    opened = Columns(reader).table(reader.scan(reveal=True))
    assert (opened.column("v").to_pylist(), opened.schema) == (["secret"], table.schema)


@pytest.mark.parametrize(("form", "kind"), [("milliseconds", "integer"), ("date", "string")])
def test_the_field_of_a_time_says_its_form(tmp_path: Path, form: str, kind: str) -> None:
    reader = pipeline(tmp_path, [attribute("v", kind, time=form)], [1]).reader()
    assert Columns(reader).schema.field("v").metadata == {TIME: form.encode()}
    closed = attribute("v", kind, time=form, encryption="searchable")
    (tmp_path / "closed").mkdir()
    reader = pipeline(tmp_path / "closed", [closed], [1]).reader()
    assert Columns(reader).schema.field("v").metadata == PROTECTED | {TIME: form.encode()}


@pytest.mark.parametrize(
    ("known", "values"),
    [
        (attribute("v", "array"), [["PRIVATE"]]),
        (attribute("v", "string"), ["fine", ["PRIVATE"]]),
        (discovered("v", "string", "integer"), ["PRIVATE", 5]),
        (attribute("v", "string"), ["PRIVATE" * 40]),
        (attribute("v", "string"), ["PRIVATE" + "é" * 90]),
        (attribute("v", "string"), ["PRIVATE\x00y"]),
        (attribute("v", "string"), ["__HIVE_DEFAULT_PARTITION__"]),
        (attribute("v", "integer"), [2**64]),
        (attribute("v.a/b", "string"), [{"a/b": "PRIVATE"}]),
        (attribute("v.x=y", "string"), [{"x=y": "PRIVATE"}]),
        (attribute("v", "integer"), range(1001)),
    ],
)
def test_what_cannot_name_folders_is_one_error_without_a_value(
    tmp_path: Path, known: AttributeMetadata, values: list[Any]
) -> None:
    reader = pipeline(tmp_path, [known], values).reader()
    with pytest.raises(ConfigError) as refused:
        write_parquet(tmp_path / "out", reader.scan(), Columns(reader), known.path)
    assert "PRIVATE" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["a/b", "..", "x=y", "50%", "é ü", "line\nbreak", "+1", ""]),
        ("integer", [0, -3, 2**63 - 1]),
        ("number", [0.1, 1e22, -2.5]),
        ("boolean", [True, False]),
    ],
)
def test_what_names_folders_is_read_again(tmp_path: Path, kind: str, values: list[Any]) -> None:
    reader = pipeline(tmp_path, [attribute("v", kind)], values).reader()
    columns = Columns(reader, ["v"])
    write_parquet(tmp_path / "out", reader.scan(), columns, "v")
    folders = ds.partitioning(pa.schema([columns.schema.field("v")]), flavor="hive")
    read = ds.dataset(tmp_path / "out", partitioning=folders).to_table().to_pylist()
    assert {row[ID]: row["v"] for row in read} == {f"card:{n}": value for n, value in enumerate(values, 1)}
    assert all(os.sep not in each.name for each in (tmp_path / "out").iterdir())
