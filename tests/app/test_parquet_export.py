"""`idgraph export --format parquet`: the profiles, whole, in columns and folders, with policy and clearance applied."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from idgraph.app import metadata_access
from idgraph.files import write_atomically
from idgraph.model import canonical, paths
from idgraph.model.attributes import DataType, TypeConflict
from tests.app.conftest import CommandLine, catalogued
from tests.profile_service.api.test_segments import segment, with_segments
from tests.retail import CREATED, snapshot

AGE, GENDER = "demographics.age", "demographics.gender"


def lines(shell: CommandLine, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell("export", *options).stdout.splitlines()]


def leaves(node: Any, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """By path, without what is masked."""
    if not isinstance(node, dict):
        return {paths.join(above): node}
    found: dict[str, Any] = {}
    for key, below in node.items():
        found |= {} if key == "$protected" else leaves(below, (*above, key))
    return found


def read(folder: Path) -> list[dict[str, Any]]:
    """Each row as its profile."""
    profiles = []
    for row in ds.dataset(folder, partitioning="hive").to_table().to_pylist():
        values = {path: value for path, value in row.items() if path[0] != "_" and value is not None}
        rest = json.loads(row["_rest"]) if row["_rest"] else {}
        profiles.append({"id": row["_id"], "identifiers": row["_identifiers"], "values": values | rest})
    return sorted(profiles, key=lambda each: str(each["id"]))


def wanted(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": each["id"], "identifiers": each["identifiers"], "values": leaves(each["attributes"])}
        for each in found
    ]


def test_nothing_is_lost_and_what_is_protected_is_null(filled: CommandLine) -> None:
    folder = filled.folder / "out"
    result = filled("export", "--format", "parquet", "-o", folder)
    assert result.exit_code == 0, result.output
    assert read(folder) == wanted(lines(filled))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.rglob("*.parquet")} == {0o600}
    text = b"".join(each.read_bytes() for each in folder.rglob("*.parquet"))
    assert b"@example.com" not in text
    assert filled("export", "--format", "parquet", "-o", folder).exit_code == 2
    opened = filled.folder / "opened"
    assert filled("export", "--format", "parquet", "-o", opened, "--reveal").exit_code == 0
    assert read(opened) == wanted(lines(filled, "--reveal"))


def test_a_folder_for_each_value(filled: CommandLine) -> None:
    folder = filled.folder / "out"
    options = ["--format", "parquet", "--columns", "activity.lastSeenAt", "--partition", GENDER]
    assert filled("export", *options, "-o", folder).exit_code == 0
    only = {"activity.lastSeenAt", GENDER}
    assert read(folder) == [
        each | {"values": {path: value for path, value in each["values"].items() if path in only}}
        for each in wanted(lines(filled))
    ]
    names = {each.name.partition("=")[2] for each in folder.iterdir()}
    assert names == {
        leaves(each["attributes"]).get(GENDER, "__HIVE_DEFAULT_PARTITION__") for each in lines(filled)
    }
    for wrong, why in (("identity.email", "protected"), ("nothing", "no attribute")):
        refused = filled("export", "--format", "parquet", "-o", filled.folder / "x", "--partition", wrong)
        assert (refused.exit_code, why in refused.stderr) == (2, True), refused.stderr
    assert filled("export", "--partition", GENDER).exit_code == 2
    assert filled("export", "--format", "parquet").exit_code == 2
    assert sorted(each.name for each in filled.folder.iterdir() if "part" in each.name) == []


def test_a_segment_with_what_a_clearance_sees(filled: CommandLine) -> None:
    known = with_segments(snapshot(), segment("everybody"))
    kept = {"etag": '"2"', "snapshot": known.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(filled.settings()), canonical.encode(kept))
    assert lines(filled, "--segment", "everybody") == sorted(lines(filled), key=lambda each: str(each["id"]))
    below = lines(filled, "--clearance", "49")
    assert not any("email" in each["attributes"].get("identity", {}) for each in below)
    assert any("email" in each["attributes"].get("identity", {}) for each in lines(filled))
    assert filled("export", "--segment", "nothing").exit_code == 2


def test_another_type_empties_no_column(filled: CommandLine) -> None:
    def exported(name: str, *options: str) -> tuple[Any, Any, str]:
        result = filled("export", "--format", "parquet", "-o", filled.folder / name, *options)
        assert result.exit_code == 0, result.output
        table = ds.dataset(filled.folder / name).to_table()
        return table.schema, sorted(table.to_pylist(), key=lambda each: str(each["_id"])), result.stderr

    catalogued(filled)
    before, rows, _ = exported("before")
    others = [
        TypeConflict(data_type=each, source="orders", first_event="x", first_seen=CREATED)
        for each in (DataType.STRING, DataType.ARRAY)
    ]
    catalogued(filled, conflicts=tuple(others))
    after, same, said = exported("after")
    assert (after, same, "_rest" in said) == (before, rows, False)
    catalogued(filled, data_type=DataType.BOOLEAN)
    odd, moved, said = exported("odd", "--columns", f"{AGE}, {GENDER}")
    assert odd.names == ["_id", "_identifiers", AGE, GENDER, "_rest"]
    ages = [each[AGE] for each in rows]
    assert [each[AGE] for each in moved] == [None] * len(rows)
    assert [json.loads(each["_rest"] or "{}").get(AGE) for each in moved] == ages
    assert all(json.loads(each["_rest"] or "{}").keys() <= {AGE} for each in moved)
    count = sum(age is not None for age in ages)
    assert f"{AGE}: {count:,} value" in said
    newest = filled.json("jobs", "list", "--json")[0]
    assert newest["counts"][f"values_in_rest/{AGE}"] == count
    assert newest["counts"]["values_in_rest"] == count


def test_a_key_joins_a_table_of_ones_own(filled: CommandLine) -> None:
    folder = filled.folder / "out"
    options = ["--format", "parquet", "--columns", GENDER, "--key", "user_id"]
    assert filled("export", *options, "-o", folder).exit_code == 0
    rows = ds.dataset(folder).to_table().to_pylist()
    assert any(row["user_id"] for row in rows)
    for row in rows:
        own = [each["value"] for each in row["_identifiers"] if each["type"] == "user_id"]
        assert row["user_id"] in own or (row["user_id"], own) == (None, [])
    for wrong in (["--key", "userid"], ["--columns", "demographics.agee"]):
        refused = filled("export", "--format", "parquet", "-o", filled.folder / "x", *wrong)
        assert (refused.exit_code, "did you mean" in refused.stderr) == (2, True), refused.stderr
    assert filled("export", "--key", "user_id").exit_code == 2


@pytest.mark.parametrize("change", [{"data_type": DataType.ARRAY}, {"data_type": DataType.BOOLEAN}])
def test_a_partition_that_cannot_be_leaves_one_line_and_nothing_else(
    filled: CommandLine, change: dict[str, Any]
) -> None:
    catalogued(filled, **change)
    before = sorted(filled.folder.iterdir())
    refused = filled("export", "--format", "parquet", "-o", filled.folder / "out", "--partition", AGE)
    assert refused.exit_code == 2, refused.output
    (line,) = [each for each in refused.stderr.splitlines() if each.startswith("error: ")]
    assert AGE in line
    assert "Traceback" not in refused.output
    assert sorted(filled.folder.iterdir()) == before
