"""Every command that acts, or shows what policy protects, has its entry in the audit log or in the history."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.main import get_command

from idgraph.app import wiring
from idgraph.app.cli import app
from idgraph.model.specs import SpecDefinition
from tests.app.conftest import CommandLine
from tests.retail import snapshot

pytestmark = pytest.mark.slow


USER = "user_id:4493"

BY_HISTORY = (
    "attributes apply, attributes approve, attributes caps, attributes confirm, attributes dismiss, attributes purge, "
    "attributes redact, attributes refuse, behaviour apply, models add, models rollback, rules apply, sandboxes create, sandboxes delete, sandboxes promote, "
    "specs activate, specs apply, specs push, specs retire, tokens add, tokens revoke, users add, users confirm, "
    "users disable, users reset"
)
"""They act through the metadata service, or on its database: its history has them."""
OPEN = (
    "attributes changes, attributes search, attributes show, audit verify, behaviour list, bench, check, dead-letters list, demo, doctor, explain, "
    "features check, flows show, index create, index follow, index versions, jobs list, jobs show, keys list, links history, links list, "
    "links show, links violations, map, models list, models try, package, publish, rules check, rules show, rules try, run, sandboxes compare, "
    "sandboxes list, serve metadata, serve profiles, specs diff, specs health, specs list, specs pull, specs show, "
    "store create, suggest find, timeline, tokens list, triggers ledger, triggers list, up, users list"
)
"""They open nothing that is protected and change nobody's data, or are the product at its work."""

Words = Callable[[CommandLine], list[str]]


def some_dead_letter(shell: CommandLine) -> str:
    return str(shell.json("dead-letters", "list", "--json")[0]["id"])


def archive(shell: CommandLine) -> str:
    file = shell.folder / "archive.jsonl"
    file.write_text('{"no": "event"}\n')
    return str(file)


def flow(shell: CommandLine) -> str:
    """The name of the flow, paused."""
    name = shell.settings().flow.name
    (shell.settings().flow_state() / "report.json").write_text("{}")
    assert shell("flows", "pause", name, "--why", "test").exit_code == 0
    return name


def exported(shell: CommandLine) -> str:
    assert shell("export").exit_code == 0
    return str(shell.json("jobs", "list", "--json")[0]["id"])


def features(shell: CommandLine) -> list[str]:
    file = shell.folder / "labels.csv"
    file.write_text(f"identifier,time\n{USER},0\n")
    return [str(file), "--columns", "latest:demographics.gender", "--output", f"{shell.folder}/features.csv"]


def pair(shell: CommandLine) -> list[str]:
    found = [each["id"] for each in shell.json("search", "--json", "--limit", "2")]
    return found[:2]


def pinned(shell: CommandLine) -> list[str]:
    both = pair(shell)
    assert shell("links", "unlink", *both).exit_code == 0
    return both


def backed_up(shell: CommandLine) -> str:
    """A backup of an installation that is gone."""
    copy = f"{shell.folder}/copy"
    assert shell("backup", "--with-keyring", copy).exit_code == 0
    shutil.rmtree(shell.settings().directory)
    return copy


def rules(shell: CommandLine) -> str:
    file = shell.folder / "rules.json"
    file.write_text(json.dumps({"hub_limit": 50}))
    return str(file)


def spec(shell: CommandLine) -> str:
    file = shell.folder / "spec.json"
    document = snapshot().specs[0].model_dump(mode="json")
    named = {field: document[field] for field in SpecDefinition.model_fields}
    file.write_text(json.dumps(named))
    return str(file)


AUDITED: dict[str, tuple[Words, str]] = {
    "access-request": (lambda shell: [USER, "--output", f"{shell.folder}/all.json"], "start access"),
    "backup": (lambda shell: [f"{shell.folder}/copy"], "back up"),
    "backfill": (lambda shell: ["orders", archive(shell)], "start backfill"),
    "dead-letters drop": (lambda shell: [some_dead_letter(shell)], "drop dead letters"),
    "dead-letters replay": (lambda shell: [some_dead_letter(shell)], "start replay"),
    "dead-letters show": (lambda shell: [some_dead_letter(shell), "--reveal"], "reveal dead letter"),
    "erase": (lambda _: [USER, "--yes"], "start erase"),
    "export": (lambda _: ["--reveal"], "start export"),
    "features add": (features, "start features"),
    "flows pause": (lambda shell: [flow(shell), "--why", "test"], "pause flow"),
    "flows resume": (lambda shell: [flow(shell), "--why", "test"], "resume flow"),
    "jobs cancel": (lambda shell: [exported(shell)], "cancel export"),
    "keys add": (lambda _: [], "keys add"),
    "keys adopt": (lambda _: ["--yes"], "keys adopt"),
    "keys init": (lambda _: [], "keys init"),
    "keys retire": (lambda _: ["1"], "keys retire"),
    "keys rotate": (lambda _: [], "start rotate"),
    "links pin": (lambda shell: ["--decision", "never", *pair(shell)], "pin never"),
    "links unlink": (pair, "pin never"),
    "links unpin": (pinned, "pin none"),
    "lookup": (lambda _: [USER, "--reveal"], "reveal"),
    "reconcile": (lambda _: [], "start reconcile"),
    "reindex": (lambda _: [], "start reindex"),
    "resolve": (lambda _: ["--check"], "start resolve"),
    "rules preview": (lambda shell: [rules(shell)], "start preview"),
    "seal": (lambda _: [], "start re-encrypt"),
    "restore": (lambda shell: [backed_up(shell)], "restore backup"),
    "search": (lambda _: ["identity.userId=4493", "--reveal"], "reveal"),
    "specs preview": (lambda shell: [spec(shell)], "start preview"),
    "suggest accept": (pair, "pin always"),
    "suggest refuse": (pair, "pin never"),
}


def leaves(command: Any, name: str = "") -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield name.strip()
        return
    for word, each in command.commands.items():
        yield from leaves(each, f"{name} {word}")


def actions(shell: CommandLine) -> list[str]:
    file = shell.settings().directory / "audit.jsonl"
    return [json.loads(line)["action"] for line in file.read_bytes().splitlines()] if file.exists() else []


def test_each_command_is_in_one_list() -> None:
    listed = [*AUDITED, *BY_HISTORY.split(", "), *OPEN.split(", ")]
    assert sorted(listed) == sorted(leaves(get_command(app)))


@pytest.mark.parametrize("name", AUDITED)
def test_a_command_that_acts_is_in_the_audit_log(name: str, filled: CommandLine) -> None:
    words, action = AUDITED[name]
    if name == "keys init":
        shutil.rmtree(filled.folder / ".idgraph")
    given = words(filled)
    before = actions(filled)
    result = filled(*name.split(), *given)
    assert action in actions(filled)[len(before) :], result.output
    entries, _ = wiring.audit_log(filled.settings()).newest(1)
    assert entries[0]["caller"] == wiring.operator_name()
    assert USER not in json.dumps(entries)


@pytest.mark.parametrize(("name", "action"), [("access-request", "access request"), ("erase", "erasure")])
def test_an_act_on_a_person_names_her_by_hash(name: str, action: str, filled: CommandLine) -> None:
    words, _ = AUDITED[name]
    with wiring.opened(filled.settings()) as resources:
        hashed = wiring.keyed_hash(resources)(USER)
    assert filled(*name.split(), *words(filled), "--why", "ticket 7").exit_code == 0
    entries, _ = wiring.audit_log(filled.settings()).newest(10)
    (found,) = (each for each in entries if each["action"] == action)
    assert (found["profile"], found["purpose"]) == (hashed, "ticket 7")


def test_a_job_that_cannot_be_recorded_does_nothing(filled: CommandLine) -> None:
    log = filled.settings().directory / "audit.jsonl"
    log.unlink(missing_ok=True)
    log.mkdir()
    assert filled("erase", USER, "--yes").exit_code == 1
    assert filled("lookup", USER).exit_code == 0
