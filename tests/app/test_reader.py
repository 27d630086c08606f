"""`idgraph.open`: what it shows is what the command line shows; docs/python.md does what it says."""

from __future__ import annotations

import doctest
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import idgraph as library
from idgraph.app import wiring
from idgraph.app.reader import POLICY_SECONDS
from idgraph.model.attributes import DataType
from idgraph.model.identifiers import Identifier
from profile_service.reader import MASK
from profile_service.tables import data_frame
from sinks.keyring.provider import KeyringFile
from tests.app.conftest import CommandLine, catalogued

pytestmark = pytest.mark.slow


PAGE = Path(__file__).parents[2] / "docs" / "python.md"
SOMEBODY = "user_id:4493"


def test_the_documentation_does_what_it_says(filled: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogued(filled)
    (filled.folder / "demo").mkdir()
    (filled.folder / "demo" / ".idgraph").mkdir()
    (filled.folder / "demo" / ".idgraph" / "demo-retail").symlink_to(filled.folder)
    page = PAGE.read_text(encoding="utf-8")
    (source,) = re.findall(r"^```\n(\[\[sources.*?)^```", page, re.MULTILINE | re.DOTALL)
    with (filled.folder / "idgraph.toml").open("a") as file:
        file.write(source)
    monkeypatch.chdir(filled.folder / "demo")
    failed, run = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    )
    assert run > 20
    assert failed == 0
    (written,) = (filled.folder / "inbox" / "scores").iterdir()
    events = list(map(json.loads, written.read_bytes().splitlines()))
    assert [each.get("score") for each in events] == [0.25, None]
    (spec,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    map_event = library.compile_spec(json.loads(spec)["operations"])
    mapped, missing = map(map_event, events)
    assert mapped.keys() == {"_event", "identity", "experiments"}
    assert mapped["experiments"] == {"churn": {"score": 0.25, "model": "v7"}}
    assert missing["experiments"] == {"churn": {"model": "v7"}}


def test_a_reveal_is_in_the_audit_log(filled: CommandLine) -> None:
    with library.open(filled.folder) as profiles:
        profiles.lookup("user_id:4493")
        profiles.lookup("user_id:4493", reveal=True, purpose="ticket 7")
        profiles.search("identity.userId=4493", reveal=True)
        list(profiles.scan(reveal=True))
    entries, _ = wiring.audit_log(filled.settings()).newest(3)
    assert [(each["action"], each["purpose"]) for each in entries] == [
        ("reveal", "in a Python program"),
        ("reveal", "in a Python program"),
        ("reveal", "ticket 7"),
    ]
    assert entries[0]["subject"] == "all profiles"
    assert "identity.email" in entries[2]["attributes"]


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
        asked = "activity.lastSeenAt<today"
        assert profiles.count(asked, time_zone="Asia/Tokyo") == profiles.count(f"{asked}@Asia/Tokyo")
        with pytest.raises(library.QueryError, match="Nowhere"):
            profiles.count(asked, time_zone="Nowhere")
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
    keyring = filled.folder / ".idgraph" / "keyring.json"
    keyring.unlink()
    KeyringFile.create(keyring)
    with library.open(filled.folder) as profiles, pytest.raises(library.KeyProviderError):
        profiles.lookup("user_id:0")


def test_a_reader_answers_nothing_in_a_fork(filled: CommandLine) -> None:
    with library.open(filled.folder / "idgraph.toml") as profiles:
        before = profiles.count()
        if (child := os.fork()) == 0:
            try:
                profiles.count()
            except library.StoreError as error:
                os._exit(0 if "call idgraph.open() in each process" in str(error) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert profiles.count() == before


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


def test_a_table_has_the_columns_of_the_catalogue_whatever_was_found(filled: CommandLine) -> None:
    catalogued(filled)
    with library.open(filled.folder) as profiles:
        whole = profiles.scan().to_arrow()
        for found in (
            profiles.search("activity.platform=nothing"),
            profiles.search(limit=3),
            profiles.search(limit=3)[:1],
            profiles.lookup(SOMEBODY),
            profiles.lookup("user_id:nobody"),
        ):
            assert found.to_arrow().schema.equals(whole.schema, check_metadata=True)
            assert found.to_pandas().dtypes.equals(profiles.scan().to_pandas().dtypes)
        for wanted in ("demographics.age", ["demographics.age"]):
            assert profiles.lookup(SOMEBODY).to_arrow(wanted).column("demographics.age").to_pylist() == [37]
        with pytest.raises(library.QueryError, match=r"demographics\.age\?"):
            profiles.scan().to_pandas(["demographics.agee"])


def test_a_key_and_the_values_that_no_column_holds_are_logged(filled: CommandLine, caplog: Any) -> None:
    catalogued(filled, data_type=DataType.BOOLEAN)
    with library.open(filled.folder) as profiles:
        frame = profiles.lookup(SOMEBODY).to_pandas("demographics.age", key="user_id")
        assert frame["user_id"].tolist() == ["4493"]
        assert frame["demographics.age"].isna().all()
        assert frame["_rest"].tolist() == ['{"demographics.age":37}']
    assert "demographics.age: 1 value" in caplog.text


def test_many_are_looked_up_at_once(filled: CommandLine) -> None:
    catalogued(filled)
    with library.open(filled.folder) as profiles:
        asked = [SOMEBODY, "user_id:nobody", *(each.id for each in profiles.scan()), SOMEBODY]
        found = profiles.lookup_many(asked)
        assert [[person.id for person in each] for each in found] == [
            [person.id for person in profiles.lookup(each)] for each in asked
        ]
        table = found.to_arrow("demographics.age")
        assert table.column("_asked").to_pylist() == [each for each in asked if each != "user_id:nobody"]
        assert profiles.lookup_many([]).to_arrow().num_rows == 0
        assert [len(each) for each in found[:2]] == [1, 0]


@pytest.mark.parametrize("wrong", [["user_id:1"], ("user_id", "1"), 480, None])
def test_what_is_not_one_identifier_is_refused(filled: CommandLine, wrong: Any) -> None:
    with library.open(filled.folder) as profiles:
        with pytest.raises(library.QueryError, match="lookup_many"):
            profiles.lookup(wrong)
        with pytest.raises(library.QueryError):
            profiles.lookup_many("user_id:1")


def test_a_data_frame_keeps_integers_beside_nulls() -> None:
    values = pa.array([2**53 + 1, None], pa.int64())
    frame = data_frame(pa.table({"a": values}))
    assert frame["a"][0] == 2**53 + 1
    assert frame["a"].isna().tolist() == [False, True]


def test_pandas_that_is_not_there_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = pa.table({"a": [1]})
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(library.ConfigError, match="pip install pandas"):
        data_frame(made)


def test_all_names_are_there() -> None:
    assert [name for name in library.__all__ if getattr(library, name, None) is None] == []
    assert {"open", "publish", "compile_spec"} <= set(dir(library))
    assert all(not name.startswith("_") or name == "__version__" for name in dir(library))


def test_a_profile_is_short_in_a_shell_and_a_table_in_a_notebook(filled: CommandLine) -> None:
    with library.open(filled.folder) as profiles:
        (person,) = profiles.lookup(SOMEBODY)
        assert SOMEBODY in repr(person)
        assert len(repr(person)) < 100
        shown = person._repr_html_()
        assert "demographics.age</td><td>37<" in shown
        assert "identity.email</td><td>protected<" in shown
        (leaf, *_) = person.leaves
        (harmful,) = [person._replace(leaves=(leaf._replace(path="<b>", value="<script>"),))]
        assert "<script>" not in harmful._repr_html_()
        assert "<b>" not in harmful._repr_html_()
