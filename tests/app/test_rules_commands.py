"""`idgraph rules`: against a real service, and as a simulator that needs none."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import wiring
from idgraph.model.identity_rules import SHOP_RULES
from idgraph.projection.projection import overtaken_mark
from tests.app.conftest import CommandLine
from tests.merge.identity.test_cases import BY_ANOTHER_RULE, CASES, LEFT_OUT, expected
from tests.retail import EXAMPLE

TRIED = [case for case in CASES if case["name"] not in LEFT_OUT]
EVENT = {
    "id": "1",
    "t": "2026-01-01T00:00:00Z",
    "source": "web",
    "ids": [["user_id", "7"], ["email", "A@x.org"]],
}
PIN = {"pair": [["user_id", "7"], ["email", "a@x.org"]], "decision": "never", "t": "2026-01-02T00:00:00Z"}


def written(folder: Path, name: str, *lines: Any) -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_rules_from_first_to_last(served: CommandLine) -> None:
    shown = served("rules", "show")
    assert json.loads(shown.stdout) == SHOP_RULES
    file = served.folder / "rules.json"
    file.write_text(shown.stdout)
    assert served("rules", "apply", file).stdout == "identity rules: version 0 unchanged\n"
    written(served.folder, "rules.json", SHOP_RULES | {"hub_limit": 20})
    saved = served("rules", "apply", file, "--reason", "kiosks")
    assert saved.stdout == "identity rules: version 1 saved\n"
    (record,) = served.json("rules", "show", "--json")
    assert (record["version"], record["document"]["hub_limit"]) == (1, 20)
    back = served("rules", "apply", "-", "--json", given=json.dumps(SHOP_RULES).encode())
    assert json.loads(back.stdout) == {"version": 2, "saved": True}
    assert json.loads(served("rules", "show").stdout) == SHOP_RULES
    assert json.loads(served("rules", "show", "--version", "1").stdout)["hub_limit"] == 20
    assert json.loads(served("rules", "show", "--version", "0").stdout)["hub_limit"] == 50
    assert served("rules", "show", "--version", "9").exit_code == 3


def test_a_mistake_is_reported_with_its_place(served: CommandLine) -> None:
    file = served.folder / "rules.json"
    file.write_text('{"namespaces": {"user": {"uniqe": true}}}')
    for command in ("check", "apply"):
        result = served("rules", command, file)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "rules.json:1:35: /namespaces/user/uniqe" in result.stderr
        assert "'unique'" in result.stderr
    file.write_text('{"blocked": [{"namespace": "mail", "value": "x"}, {"pattern": "(a+)+"}]}')
    result = served("rules", "check", file, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["ok"]) == (1, False)
    assert [each["pointer"] for each in found["problems"]] == ["/blocked/1/pattern"]
    file.write_text('{"limits": [{"namespace": "card", "max": 1}]}')
    assert "/limits/0/namespace" in served("rules", "apply", file).stderr
    assert served.json("rules", "show", "--json")[0]["version"] == 0
    assert served("rules", "check", served.folder / "absent.json").exit_code == 2


def test_without_a_service_rules_are_not_to_be_had(with_keys: CommandLine) -> None:
    assert with_keys("rules", "show").exit_code == 2  # no token yet


@pytest.mark.parametrize("case", TRIED, ids=lambda case: str(case["name"]))
def test_a_case_is_tried(case: dict[str, Any], idgraph: CommandLine) -> None:
    case = copy.deepcopy(case)
    for namespace, added in BY_ANOTHER_RULE.get(case["name"], {}).items():
        case["rules"]["namespaces"][namespace].update(added)
    (whole,) = idgraph.json("rules", "try", written(idgraph.folder, "case.json", case), "--json")
    assert whole["persons"] == expected(case)
    if case["expressible"] and "violations" in case:
        listed = sorted([*sorted(each[:2]), each[2]] for each in case["violations"])
        assert whole["violations"] == listed
    apart = (
        written(idgraph.folder, "rules.json", case["rules"]),
        written(idgraph.folder, "events.jsonl", *case["events"], *case.get("pins", ())),
    )
    assert idgraph.json("rules", "try", *apart, "--json") == [whole]


@pytest.mark.parametrize("case", TRIED[::45], ids=lambda case: str(case["name"]))
def test_a_case_is_tried_by_the_command_itself(case: dict[str, Any], tmp_path: Path) -> None:
    rules = written(tmp_path, "rules.json", case["rules"])
    lines = "".join(json.dumps(line) + "\n" for line in (*case["events"], *case.get("pins", ())))
    words = [sys.executable, "-m", "idgraph.app.cli", "rules", "try", str(rules), "-", "--json"]
    result = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(result.stdout)["persons"] == expected(case)


def test_what_is_tried_is_shown_to_people(idgraph: CommandLine) -> None:
    rules = written(idgraph.folder, "rules.json", SHOP_RULES)
    other = EVENT | {"id": "2", "ids": [["user_id", "8"], ["email", "a@x.org"]]}
    shown = idgraph("rules", "try", rules, written(idgraph.folder, "events.jsonl", EVENT, other)).stdout
    assert "3 persons\n" in shown
    assert "email:a@x.org - user_id:7: contested\n" in shown
    assert "email:a@x.org - user_id:8: contested\n" in shown
    pinned = idgraph("rules", "try", rules, "-", given=json.dumps(EVENT | PIN).encode())
    assert pinned.exit_code == 1  # a pin is no event
    lines = "\n".join(map(json.dumps, (EVENT, PIN))).encode()
    assert "user_id:7: never\n" in idgraph("rules", "try", rules, "-", given=lines).stdout


def test_a_line_that_cannot_be_read_is_left_out_and_reported(idgraph: CommandLine) -> None:
    rules = written(idgraph.folder, "rules.json", SHOP_RULES)
    events = written(idgraph.folder, "events.jsonl", [1], EVENT | {"ids": [["user_id", 7]]}, EVENT)
    with events.open("a") as file:
        file.write("{\n")
    result = idgraph("rules", "try", rules, events, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["persons"] == [[["email", "a@x.org"], ["user_id", "7"]]]
    assert [line.split(":")[1:3] for line in result.stderr.splitlines()] == [
        [" line 1", " expected an object, found an array"],
        [" line 2", " /ids/0/1"],
        [" line 4", " not JSON"],
    ]


@pytest.mark.parametrize(
    ("evidence", "persons"),
    [
        (None, [[["email", "guest@x.org"], ["user_id", "480"]]]),
        ({"links": []}, [[["email", "guest@x.org"]], [["user_id", "480"]]]),
        ({"strength": 0.2}, [[["email", "guest@x.org"]], [["user_id", "480"]]]),
    ],
)
def test_records_are_mapped_by_their_spec(
    evidence: dict[str, Any] | None, persons: list[Any], idgraph: CommandLine
) -> None:
    mapping = {
        "name": "orders",
        "source": "orders",
        "operations": {"operation": "jmespath", "spec": {"email": "mail", "user": "id", "at": "at"}},
        "ordinal": "at",
        "identifiers": [
            {"type": "email", "path": "email", "primary": True},
            {"type": "user_id", "path": "user"},
        ],
        "evidence": evidence,
    }
    rules = written(idgraph.folder, "rules.json", SHOP_RULES | {"least_strength": 0.5})
    spec = written(idgraph.folder, "spec.json", mapping)
    record = {"mail": "Guest@x.org", "id": 480, "at": "2026-01-01T00:00:00Z", "event_id": "e1"}
    records = written(idgraph.folder, "records.jsonl", record, {"id": 5, "at": 1})
    result = idgraph("rules", "try", rules, records, "--spec", spec, "--json")
    # The configured source of this name has no id; without its configuration a line's number is one.
    assert result.exit_code == 1
    other = written(idgraph.folder, "spec.json", mapping | {"source": "elsewhere"})
    result = idgraph("rules", "try", rules, records, "--spec", other, "--json")
    assert json.loads(result.stdout)["persons"] == persons
    assert result.stderr.startswith(f"{records}: line 2: ")
    toml = idgraph.folder / "idgraph.toml"
    toml.write_text(
        toml.read_text()
        + '[[sources]]\nname = "shop"\npath = "in"\ntype = {const = "x"}\nid = {path = "event_id"}\n'
    )
    result = idgraph("rules", "try", rules, records, "--spec", other, "--source", "shop", "--json")
    assert json.loads(result.stdout)["persons"] == persons
    assert idgraph("rules", "try", rules, records, "--spec", other, "--source", "none").exit_code == 2


def test_words_that_do_not_go_together(idgraph: CommandLine) -> None:
    rules = written(idgraph.folder, "rules.json", SHOP_RULES)
    for words in (
        ["-", "-"],
        [rules, "--spec", EXAMPLE / "specs" / "orders.json"],
        [rules, rules, "--source", "orders"],
        [rules, rules, rules, "--spec", EXAMPLE / "specs" / "orders.json"],
    ):
        assert idgraph("rules", "try", *words).exit_code == 2


def test_events_of_several_sources_are_tried_together(idgraph: CommandLine) -> None:
    rules = written(idgraph.folder, "rules.json", SHOP_RULES)
    one = written(idgraph.folder, "one.jsonl", EVENT)
    other = written(
        idgraph.folder,
        "other.jsonl",
        EVENT | {"source": "shop", "ids": [["email", "a@x.org"], ["device_id", "d"]]},
    )
    (found,) = idgraph.json("rules", "try", rules, one, other, "--json")
    assert found["persons"] == [[["device_id", "d"], ["email", "a@x.org"], ["user_id", "7"]]]


def test_a_record_takes_another_back(idgraph: CommandLine) -> None:
    mapping = {
        "name": "orders",
        "source": "shop",
        "operations": {"operation": "jmespath", "spec": {"user": "id", "email": "mail", "undo": "undo"}},
        "identifiers": [
            {"type": "user_id", "path": "user", "primary": True},
            {"type": "email", "path": "email"},
        ],
        "retracts": "undo",
    }
    rules, spec = (
        written(idgraph.folder, "rules.json", SHOP_RULES),
        written(idgraph.folder, "spec.json", mapping),
    )
    records = written(
        idgraph.folder, "records.jsonl", {"id": "7", "undo": 2}, {"id": "7", "mail": "a@x.org"}, {"id": "8"}
    )
    (found,) = idgraph.json("rules", "try", rules, records, "--spec", spec, "--json")
    assert found["persons"] == [[["user_id", "8"]]]


def test_rules_are_previewed(filled: CommandLine) -> None:
    """By new rules without the e-mail address as evidence."""
    before = filled("export", "--provenance").stdout
    rules = written(filled.folder, "rules.json", {"least_strength": 2})
    (found,) = filled.json("rules", "preview", rules, "--json")
    assert found["errors"] is None
    assert found["fragments"] == found["looked_at"] == found["profiles_after"]
    assert found["profiles_before"] == len(before.splitlines())
    assert found["splits"] >= 1
    assert found["merges"] == 0
    text = filled("rules", "preview", rules)
    assert f"splits: {found['splits']}\n" in text.stdout
    assert "the preview begins" in text.stderr
    assert "normalise" in text.stderr
    assert "@" not in text.stdout + json.dumps(found)
    (sampled,) = filled.json("rules", "preview", rules, "--sample", "5", "--json")
    assert sampled["looked_at"] == 5
    assert sampled["errors"]["splits"] > 0
    assert "estimated from 5 of" in filled("rules", "preview", rules, "--sample", "5").stdout
    assert filled("export", "--provenance").stdout == before
    assert {each["kind"] for each in filled.json("jobs", "list", "--json")} >= {"preview"}
    assert filled("rules", "preview", written(filled.folder, "rules.json", {"hub": 1})).exit_code == 1


def test_rules_of_a_new_metadata_database_count_once_that_is_said(filled: CommandLine) -> None:
    newer = overtaken_mark(0)
    with wiring.opened(filled.settings()) as resources:
        resources.store.remember(newer)
    for options, is_late in (((), True), (("--rules-restored",), False)):
        assert filled("resolve", *options).exit_code == 0
        with wiring.opened(filled.settings()) as resources:
            assert resources.store.remembers(newer) is is_late
