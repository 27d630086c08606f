"""`idgraph specs` and `idgraph attributes` against a real service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import CommandLine
from tests.app.discoveries import AN_EMAIL, discovered, send
from tests.retail import EXAMPLE

pytestmark = pytest.mark.slow


ORDERS = EXAMPLE / "specs" / "orders.json"


def changed(folder: Path, name: str = "orders.json", **fields: Any) -> Path:
    file = folder / name
    file.write_text(json.dumps({**json.loads(ORDERS.read_text()), **fields}))
    return file


def test_specs_from_first_to_last(served: CommandLine) -> None:
    assert served("specs", "apply", ORDERS).stdout == "shop-orders: version 1 saved, version 1 is active\n"
    assert (
        served("specs", "apply", ORDERS).stdout == "shop-orders: version 1 unchanged, version 1 is active\n"
    )
    draft = changed(served.folder, status="draft", description="a draft")
    assert served("specs", "apply", draft, "--reason", "try").stdout == (
        "shop-orders: version 2 saved, version 1 is active\n"
    )
    assert served("specs", "activate", "shop-orders").stdout == "shop-orders: version 2 is active\n"
    assert served("specs", "activate", "shop-orders", "--version", "1").stdout == (
        "shop-orders: version 1 is active\n"
    )
    (listed,) = served.json("specs", "list", "--json")
    assert (listed["name"], listed["latest_version"], listed["active_version"]) == ("shop-orders", 2, 1)
    table = served("specs", "list").stdout
    assert "shop-orders" in table
    assert "a draft" in table
    assert served("specs", "retire", "shop-orders").stdout == "shop-orders: retired\n"
    assert served.json("specs", "list", "--json")[0]["active_version"] is None


def test_what_is_shown_can_be_applied_again(served: CommandLine) -> None:
    served("specs", "apply", ORDERS)
    shown = served("specs", "show", "shop-orders")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["operations"] == json.loads(ORDERS.read_text())["operations"]
    again = served.folder / "again.json"
    again.write_text(shown.stdout)
    assert "version 1 unchanged" in served("specs", "apply", again).stdout
    assert served("specs", "show", "shop-orders", "--version", "1").stdout == shown.stdout


def test_a_table_shows_text_that_looks_like_markup_as_it_is(served: CommandLine) -> None:
    served("specs", "apply", changed(served.folder, description="see [bold]this[/bold] and [/nothing]"))
    assert "see [bold]this[/bold] and [/nothing]" in served("specs", "list").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["specs", "show", "none"],
        ["specs", "activate", "none"],
        ["specs", "retire", "none"],
        ["attributes", "show", "none"],
    ],
)
def test_what_is_not_there_exits_with_3(words: list[str], served: CommandLine) -> None:
    result = served(*words)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr


def test_a_version_that_is_not_there_exits_with_3(served: CommandLine) -> None:
    served("specs", "apply", ORDERS)
    assert served("specs", "show", "shop-orders", "--version", "9").exit_code == 3
    assert (
        served("specs", "show", "shop-order").stderr
        == "error: no such spec: shop-order (did you mean 'shop-orders'?)\n"
    )
    assert served("specs", "activate", "shop-orders", "--version", "9").exit_code == 3


def test_a_wrong_spec_is_refused_with_its_place_and_nothing_is_saved(served: CommandLine) -> None:
    wrong = changed(served.folder, "wrong.json", operations=[{"operation": "shfit", "spec": {}}])
    result = served("specs", "apply", ORDERS, wrong)
    assert result.exit_code == 1
    assert "wrong.json:1:" in result.stderr
    assert ": /operations/0/operation: there is no operation 'shfit'" in result.stderr
    missing = changed(served.folder, "missing.json", identifiers=[])
    result = served("specs", "apply", missing)
    assert result.exit_code == 1
    assert ": /identifiers: expected at least 1, found an empty array" in result.stderr
    result = served("specs", "apply", served.folder / "gone.json")
    assert result.exit_code == 2
    assert "gone.json: No such file or directory" in result.stderr


def test_a_chain_alone_is_reported_where_it_belongs(served: CommandLine) -> None:
    chain = served.folder / "chain.json"
    chain.write_text('[{"operation": "shift", "spec": {"*": "&"}}]')
    assert served("specs", "apply", chain).stderr == (
        f"error: {chain}:1:1: expected an object, found an array "
        "(put it under `operations`, see docs/from-jolt.md)\n"
    )


def test_attributes_are_declared_found_and_shown(served: CommandLine) -> None:
    assert served("attributes", "apply", EXAMPLE / "attributes.json", "--reason", "first").stdout == (
        "7 attributes applied\n"
    )
    assert {each["path"] for each in served.json("attributes", "search", "identity", "--json")} == {
        "identity.email",
        "identity.name",
        "identity.userId",
    }
    assert len(served.json("attributes", "search", "--json", "--limit", "2")) == 2
    assert served.json("attributes", "search", "--json", "--status", "discovered") == []
    assert "searchable" in served("attributes", "search", "e-mail").stdout
    shown = json.loads(served("attributes", "show", "identity.email").stdout)
    assert shown["in_force"]["encryption"] == shown["encryption"]
    assert "its own encryption" in shown["in_force"]["because"][0]
    assert (shown["encryption"], shown["version"]) == ("searchable", 1)
    served("attributes", "apply", EXAMPLE / "attributes.json")
    assert json.loads(served("attributes", "show", "identity.email").stdout)["version"] == 1
    near = served("attributes", "show", "identity.emial")
    assert (near.exit_code, near.stderr) == (
        3,
        "error: no such attribute: identity.emial (did you mean 'identity.email'?)\n",
    )


def test_a_spec_for_a_source_that_there_is_not_is_saved_with_a_warning(served: CommandLine) -> None:
    done = served("specs", "apply", changed(served.folder, "typo.json", source="order"))
    assert done.exit_code == 0
    assert "warning: /source: no source is called 'order' (did you mean 'orders'?)" in done.stderr
    assert served("specs", "apply", ORDERS).stderr == ""


def test_a_list_shows_the_protection_in_force(served: CommandLine) -> None:
    served("attributes", "apply", EXAMPLE / "attributes.json")
    send(served, discovered("identity.name.full"), discovered("shop.persona"))
    listed = {each["path"]: each for each in served.json("attributes", "search", "--json")}
    assert listed["identity.name.full"]["encryption"] == "none"
    in_force = {path: each["encryption_in_force"] for path, each in listed.items()}
    assert in_force["identity.name.full"] == in_force["identity.name"] == "protected"
    assert in_force["shop.persona"] == "none"
    shown = served("attributes", "search", "identity.name").stdout.splitlines()
    assert ["(inherited)" in line for line in shown if "identity.name" in line] == [False, True]


def test_a_search_says_when_it_shows_only_the_first(served: CommandLine) -> None:
    send(served, *(discovered(f"made.a{number:04}") for number in range(1_070)))
    for form in ((), ("--json",)):
        result = served("attributes", "search", *form)
        assert result.stderr == "50 of 1,070; more with --limit\n"
        assert result.stdout.count("made.a") == 50
        assert (
            served("attributes", "search", "--limit", "2", *form).stderr == "2 of 1,070; more with --limit\n"
        )
        assert served("attributes", "search", "a000", *form).stderr == ""
        assert served("attributes", "search", "--limit", "1070", *form).stderr == ""


def test_many_attributes_are_not_counted_to_the_last(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.app.commands.attributes._MOST_COUNTED", 5)
    send(served, *(discovered(f"made.a{number}") for number in range(9)))
    assert served("attributes", "search", "--limit", "3").stderr == "3 of more than 8; more with --limit\n"
    assert served("attributes", "search", "--limit", "4").stderr == "4 of 9; more with --limit\n"


def test_attributes_with_a_proposal_can_be_asked_for(served: CommandLine) -> None:
    send(served, discovered("a"), discovered("b", AN_EMAIL), discovered("c"), discovered("d", AN_EMAIL))

    def found(*words: str) -> list[str]:
        return [each["path"] for each in served.json("attributes", "search", "--json", "--proposed", *words)]

    assert found() == ["b", "d"]
    assert (
        served("attributes", "search", "--proposed", "--limit", "1").stderr == "1 of 2; more with --limit\n"
    )
    assert served("attributes", "confirm", "b").exit_code == 0
    assert found() == ["d"]
    assert found("--status", "active") == ["b"]


@pytest.mark.parametrize(
    ("content", "code", "reported"),
    [
        (
            '[{"path": "a", "data_type": "string"}, {"path": "b", "data_type": "text"}]',
            1,
            "bad.json:1:67: /1/data_type: expected 'string',",
        ),
        ('{"path": "a"}', 1, "bad.json:1:1: the key 'data_type' is missing"),
        ("{", 1, "bad.json:1:2: not JSON"),
        ("7", 1, "bad.json:1:1: expected an object, found 7"),
        ('{"path": "a", "data_type": "string", "policy": "sum"}', 1, "sum"),
    ],
)
def test_a_wrong_attribute_is_refused(content: str, code: int, reported: str, served: CommandLine) -> None:
    file = served.folder / "bad.json"
    file.write_text(content)
    result = served("attributes", "apply", file)
    assert result.exit_code == code, result.stderr
    assert reported in result.stderr
    assert served.json("attributes", "search", "--json") == []


def test_of_several_attributes_it_is_said_which_are_not_applied_and_where_the_mistake_stands(
    served: CommandLine,
) -> None:
    more = served.folder / "more.json"
    more.write_text('{"path": "zz.ok2", "data_type": "string"}')
    file = served.folder / "some.json"
    tags = '{"path": "tags", "data_type": "array", "encryption": "searchable"}'
    file.write_text(f'[{{"path": "zz.ok1", "data_type": "string"}},\n {tags}]')

    result = served("attributes", "apply", file, more)

    assert (result.exit_code, result.stdout) == (1, "")
    where, reported = result.stderr.splitlines()
    assert reported == "2 of 3 applied; not applied: tags"
    column = 2 + tags.index('"searchable"')
    assert where == (
        f"error: {file}:2:{column}: /1/encryption: an array has no "
        "blind index: searchable attributes are found by one whole value (take protected)"
    )
    assert [each["path"] for each in served.json("attributes", "search", "--json")] == ["zz.ok1", "zz.ok2"]


def test_all_refused_attributes_are_reported_at_once(served: CommandLine) -> None:
    file = served.folder / "some.json"
    wrong = {"data_type": "array", "encryption": "searchable"}
    file.write_text(
        json.dumps([{"path": "a", **wrong}, {"path": "b", "data_type": "string"}, {"path": "c", **wrong}])
    )

    result = served("attributes", "apply", file)

    first, second, reported = result.stderr.splitlines()
    assert (result.exit_code, "/0/encryption" in first, "/2/encryption" in second) == (1, True, True)
    assert reported == "1 of 3 applied; not applied: a, c"
    assert [each["path"] for each in served.json("attributes", "search", "--json")] == ["b"]


def test_an_attribute_that_a_file_defines_twice_is_refused_with_both_places(served: CommandLine) -> None:
    file = served.folder / "twice.json"
    file.write_text('[{"path": "q", "data_type": "string"},\n {"path": "q", "data_type": "number"}]')

    result = served("attributes", "apply", file)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {file}:2:11: /1/path: q is defined at /0 already\n"
    assert served.json("attributes", "search", "--json") == []


def test_an_attribute_that_waits_for_a_second_person_is_reported_also_when_a_later_one_is_refused(
    served: CommandLine,
) -> None:
    file = served.folder / "some.json"
    sealed = {"path": "a", "data_type": "array", "encryption": "protected"}
    file.write_text(json.dumps(sealed))
    assert served("attributes", "apply", file).exit_code == 0
    wrong = {**sealed, "path": "b", "encryption": "searchable"}
    file.write_text(json.dumps([{**sealed, "path": "c"}, {**sealed, "encryption": "none"}, wrong]))

    waits, where, reported = served("attributes", "apply", file).stderr.splitlines()

    assert "idgraph attributes approve 1" in waits
    assert reported == "1 of 3 applied; not applied: b"
    assert ": /2/encryption: " in where


COMMANDS = [
    ["specs", "list"],
    ["specs", "show", "x"],
    ["specs", "apply", str(ORDERS)],
    ["specs", "activate", "x"],
    ["specs", "retire", "x"],
    ["attributes", "search"],
    ["attributes", "show", "x"],
    ["attributes", "apply", str(EXAMPLE / "attributes.json")],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_service_or_with_a_wrong_token_or_with_none(
    words: list[str], served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = served.settings().token_file()
    token.write_text("a-token-nobody-ever-made")
    refused = served(*words)
    assert (refused.exit_code, refused.stdout) == (5, "")
    assert "HTTP 401" in refused.stderr
    assert "a-token-nobody-ever-made" not in refused.stderr
    monkeypatch.setenv("IDGRAPH_METADATA__URL", "http://127.0.0.1:9")
    away = served(*words)
    assert (away.exit_code, away.stdout) == (5, "")
    assert "http://127.0.0.1:9" in away.stderr
    token.unlink()
    none = served(*words)
    assert (none.exit_code, none.stdout) == (2, "")
    assert "idgraph serve metadata" in none.stderr


@pytest.mark.parametrize(
    "words",
    [("specs", "show"), ("specs", "retire"), ("attributes", "show"), ("attributes", "confirm")],
    ids=" ".join,
)
def test_an_empty_name_is_a_mistake_of_the_command(words: tuple[str, ...], served: CommandLine) -> None:
    result = served(*words, "")
    assert (result.exit_code, result.stderr) == (2, "error: the name is empty\n")


def test_caps_are_set_and_undecided_attributes_purged(served: CommandLine) -> None:
    assert "at most 2 new ones" in served("attributes", "caps", "--per-source-and-day", "2").stdout
    send(served, discovered("a.x"), discovered("a.y"), discovered("b"))
    (today,) = served.json("attributes", "caps", "--json")
    assert (today["created"], today["waiting"]) == (2, 1)
    would = served("attributes", "purge", "--prefix", "a.", "--dry-run")
    assert would.stdout == "a.x\na.y\n"
    assert served("attributes", "purge", "--prefix", "a.").exit_code != 0, "a purge has a reason"
    served("attributes", "purge", "--prefix", "a.", "--reason", "noise")
    assert served.json("attributes", "search", "--json") == []
