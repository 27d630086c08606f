"""`idgraph export --format parquet`: the profiles, whole, in columns and folders, with policy and clearance applied."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from idgraph.app import wiring
from idgraph.files import write_atomically
from idgraph.model import canonical, paths
from idgraph.model.attributes import DataType
from profile_service.tables import write_parquet
from tests.app.conftest import CommandLine
from tests.profile_service.api.test_segments import segment, with_segments
from tests.retail import snapshot

GENDER = "demographics.gender"


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
    assert read(folder) == wanted(lines(filled))
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
    write_atomically(wiring.snapshot_file(filled.settings()), canonical.encode(kept))
    assert lines(filled, "--segment", "everybody") == sorted(lines(filled), key=lambda each: str(each["id"]))
    below = lines(filled, "--clearance", "49")
    assert not any("email" in each["attributes"].get("identity", {}) for each in below)
    assert any("email" in each["attributes"].get("identity", {}) for each in lines(filled))
    assert filled("export", "--segment", "nothing").exit_code == 2


def test_of_no_profiles_there_is_an_empty_table(tmp_path: Path) -> None:
    write_parquet(tmp_path / "out", iter(()), {GENDER: DataType.STRING}, None)
    table = ds.dataset(tmp_path / "out").to_table()
    assert (table.num_rows, GENDER in table.column_names) == (0, True)
