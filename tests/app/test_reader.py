"""`idgraph.open`: what it shows is what the command line shows; docs/python.md does what it says."""

from __future__ import annotations

import doctest
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import idgraph as library
from idgraph.app.reader import POLICY_SECONDS
from idgraph.model.identifiers import Identifier
from profile_service.reader import MASK, Profile, ProfileLeaf
from profile_service.tables import ID, PROTECTED, arrow_table, data_frame
from tests.app.conftest import CommandLine

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
SOMEBODY = "user_id:4493"


def test_the_documentation_does_what_it_says(filled: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    (filled.folder / "demo").mkdir()
    (filled.folder / "demo" / ".idgraph").mkdir()
    (filled.folder / "demo" / ".idgraph" / "demo-retail").symlink_to(filled.folder)
    monkeypatch.chdir(filled.folder / "demo")
    failed, run = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    )
    assert run > 20
    assert failed == 0


@pytest.mark.parametrize("reveal", [False, True])
def test_it_shows_what_the_command_line_shows(filled: CommandLine, reveal: bool) -> None:
    words = ["export", "--provenance", *(["--reveal"] if reveal else [])]
    with library.open(filled.folder / "idgraph.toml") as profiles:
        assert [each.canonical(True) for each in profiles.scan(reveal=reveal)] == filled.json(*words)
        found = filled.json("lookup", SOMEBODY, "--json", *words[2:])
        assert [each.canonical(True) for each in profiles.lookup(SOMEBODY, reveal=reveal)] == found
        assert profiles.lookup(Identifier.parse(SOMEBODY), reveal=reveal)[0].id == found[0]["id"]
        found = filled.json("search", "activity.platform=ios", "--json", *words[2:])
        page = profiles.search("activity.platform=ios", reveal=reveal)
        assert [each.canonical(True) for each in page] == found
        assert profiles.count("activity.platform=ios") == len(found)


def test_it_sorts_and_counts_values_as_the_command_line_does(filled: CommandLine, caplog: Any) -> None:
    words = ("demographics.age>=20", "OR", "demographics.age<20")
    with library.open(filled.folder) as profiles:
        ages = [each.get("demographics.age") for each in profiles.search(*words, sort="-demographics.age")]
        assert ages == sorted(ages, reverse=True)
        assert len(ages) > 1
        counted = {each.value: each.profiles for each in profiles.facets("activity.platform", *words)}
        shown = filled.json("search", *words, "--facet", "activity.platform", "--json")[0]["facets"]
        assert counted == {each["value"]: each["profiles"] for each in shown["activity.platform"]}
        assert profiles.count("demographics.agee=3") == 0
    assert "demographics.agee" in caplog.text


def test_pages_follow_each_other(filled: CommandLine) -> None:
    with library.open(filled.folder) as profiles:
        everybody = [each.id for each in profiles.scan()]
        cursor: str | None = None
        paged: list[str] = []
        while len(paged) < len(everybody):
            page = profiles.search(limit=7, cursor=cursor)
            paged += [each.id for each in page]
            cursor = page.cursor
        assert sorted(paged) == sorted(everybody)
        assert cursor is None


def test_what_became_protected_is_masked_by_a_reader_that_is_open(
    filled: CommandLine, served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.app.reader.POLICY_SECONDS", POLICY_SECONDS / 1e6)
    path = "demographics.age"
    definition = filled.folder / "age.json"
    with library.open(filled.folder) as profiles:
        for policy, shown in ((("public", "none"), 37), (("restricted", "protected"), MASK)):
            definition.write_text(
                '{"path": "demographics.age", "data_type": "number", "description": "", "classification": '
                f'"{policy[0]}", "encryption": "{policy[1]}"}}'
            )
            assert served("attributes", "apply", definition).exit_code == 0
            assert profiles.lookup(SOMEBODY)[0].get(path) == shown


@pytest.mark.parametrize("text", ["", "user_id", ":1"])
def test_what_is_no_identifier_is_refused(filled: CommandLine, text: str) -> None:
    with library.open(filled.folder) as profiles, pytest.raises(library.QueryError):
        profiles.lookup(text)


def test_without_a_keyring_nothing_is_read(idgraph: CommandLine) -> None:
    with pytest.raises(library.ConfigError, match="keys init"):
        library.open(idgraph.folder)


def test_another_keyring_is_noticed(filled: CommandLine) -> None:
    (filled.folder / ".idgraph" / "keyring.json").unlink()
    assert filled("keys", "init").exit_code == 0
    with library.open(filled.folder) as profiles, pytest.raises(library.KeyProviderError):
        profiles.lookup("user_id:0")


def test_a_closed_reader_answers_nothing(filled: CommandLine) -> None:
    with library.open(filled.folder) as profiles:
        scan = profiles.scan()
    for asked in (lambda: profiles.lookup(SOMEBODY), lambda: list(scan), profiles.count):
        with pytest.raises(library.StoreError, match="closed"):
            asked()


def test_a_damaged_profile_is_left_out_and_logged(filled: CommandLine, caplog: Any) -> None:
    import sqlite3

    with library.open(filled.folder) as profiles:
        before = len(list(profiles.scan()))
        single = next(each.id for each in profiles.scan() if len(each.identifiers) == 1)
        with sqlite3.connect(filled.folder / ".idgraph" / "profiles.db") as database:
            database.execute("UPDATE fragments SET state = x'00' WHERE id = ?", (single,))
        assert len(list(profiles.scan())) == before - 1
    assert "damaged" in caplog.text


def table(*values: Any) -> pa.Table:
    """Of one attribute `a`; `...` stands for a profile without it."""
    return arrow_table(
        [
            Profile(f"t:{number}", 1, (), () if value is ... else (leaf("a", value),))
            for number, value in enumerate(values)
        ]
    )


def leaf(path: str, value: Any) -> ProfileLeaf:
    shown: Any = None
    return ProfileLeaf(path, value, value is MASK, shown, lambda origin: origin)


@pytest.mark.parametrize(
    ("values", "kind", "column"),
    [
        ([1, ..., -3], pa.int64(), [1, None, -3]),
        ([1, 2.5], pa.float64(), [1.0, 2.5]),
        ([2**53 + 1, 0.5], pa.string(), ["9007199254740993", "0.5"]),
        ([2**63], pa.string(), ["9223372036854775808"]),
        ([True, False], pa.bool_(), [True, False]),
        ([True, 1], pa.string(), ["true", "1"]),
        (["é", ...], pa.string(), ["é", None]),
        (["text", 1, [1]], pa.string(), ["text", "1", "[1]"]),
        ([[1], [2, 3]], pa.list_(pa.int64()), [[1], [2, 3]]),
        ([[], [None, "a"]], pa.list_(pa.string()), [[], [None, "a"]]),
        ([["a"], [1]], pa.string(), ['["a"]', "[1]"]),
        ([[[1]]], pa.string(), ["[[1]]"]),
        ([[{"b": 1}]], pa.string(), ['[{"b":1}]']),
        ([Decimal("0.1")], pa.string(), ["0.1"]),
        ([MASK, 1], pa.int64(), [None, 1]),
        ([MASK], pa.null(), [None]),
    ],
)
def test_a_column_has_the_type_of_its_values(values: list[Any], kind: pa.DataType, column: list[Any]) -> None:
    made = table(*values)
    assert made.schema.field("a").type == kind
    assert made.column("a").to_pylist() == column
    assert made.column(ID).to_pylist() == [f"t:{number}" for number in range(len(values))]
    assert (made.schema.field("a").metadata == PROTECTED) is (MASK in values)


def test_named_columns_are_there_in_their_order_also_without_values() -> None:
    made = arrow_table([Profile("t:1", 1, (), (leaf("a", 1), leaf("b", 2)))], ["none", "b"])
    assert made.column_names[2:] == ["none", "b"]
    assert made.to_pylist()[0] == {"_id": "t:1", "_identifiers": [], "none": None, "b": 2}


def test_a_data_frame_keeps_integers_beside_nulls() -> None:
    frame = data_frame(table(2**53 + 1, ...))
    assert frame["a"][0] == 2**53 + 1
    assert frame["a"].isna().tolist() == [False, True]


def test_pandas_that_is_not_there_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = table(1)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(library.ConfigError, match="pip install pandas"):
        data_frame(made)


def test_all_names_are_there() -> None:
    assert [name for name in library.__all__ if getattr(library, name, None) is None] == []
