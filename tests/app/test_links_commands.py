"""`idgraph links` and `idgraph explain`: decisions on pairs of identifiers, and why they are one person."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import wiring
from idgraph.app.settings.document import Settings
from idgraph.model.errors import ProfileIndexError
from idgraph.model.events import RawRecord
from sinks.tantivy.index import TantivyProfileIndex
from tests.app.conftest import CommandLine, filled_by, keep_snapshot
from tests.docs.shell_pages import DOCS, matches, steps
from tests.retail import Pipeline, durable_keys, order, raw, records, snapshot

pytestmark = pytest.mark.slow


MAIL, USER, OTHER = "canary.one@example.com", "user_id:canary-user-4711", "user_id:canary-user-4712"
EMAIL = f"email:{MAIL}"
PAIR = (USER, EMAIL)


def visit(number: int, user: str = USER, mail: str = MAIL) -> RawRecord:
    """A customer logs in, and her address is known."""
    content = {
        "type": "identify",
        "userId": user.partition(":")[2],
        "messageId": f"visit-{number}",
        "timestamp": f"2024-03-0{number}T00:00:00Z",
        "platform": "canary-platform",
        "traits": {"email": f" {mail.upper()} ", "name": "Zitronengelb", "age": 30},
    }
    return raw(content, 1000 + number, "segment")


def purchase(number: int = 1, mail: str = MAIL) -> RawRecord:
    """An order without a customer's number."""
    customer = {"email": mail, "name": {"first": "Zitronengelb", "last": "Lee"}}
    return order(number, 900 + number, customer=customer, created_at="2024-03-05T00:00:00Z")


def process(settings: Any, given: Iterable[RawRecord]) -> None:
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=snapshot())
        pipeline.process(given)
        pipeline.data_keys.close()


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled_by(fill, tmp_path_factory.mktemp("filled"))


def fill(settings: Settings) -> None:
    keep_snapshot(settings, snapshot())
    process(settings, [*records(8), visit(1), visit(2), purchase()])


def ids(idgraph: CommandLine, *words: str) -> list[str]:
    return [each["id"] for each in idgraph.json(*words, "--json")]


def found(idgraph: CommandLine) -> tuple[list[str], list[str], list[str], list[str]]:
    """The profiles that look-up finds by either identifier, and search by what each fragment brought."""
    return (
        ids(idgraph, "lookup", USER),
        ids(idgraph, "lookup", EMAIL),
        ids(idgraph, "search", "activity.platform=canary-platform"),
        ids(idgraph, "search", f"identity.email={MAIL}"),
    )


def test_unlink_splits_and_unpin_restores_every_byte(filled: CommandLine) -> None:
    before, export = found(filled), filled("export", "--provenance", "--reveal").stdout
    assert before == ([USER], [USER], [USER], [USER])
    (done,) = filled.json("links", "unlink", *PAIR, "--who", "jo", "--why", "her brother's", "--json")
    assert [each["id"] for each in done["before"]] == [USER]
    assert len(done["after"]) == 2
    split = found(filled)
    (hashed,) = split[1]
    assert split[0] == split[2] == [USER]
    assert split[3] == sorted([USER, hashed])
    assert hashed.startswith("email:~")
    assert sorted(each["id"] for each in done["after"]) == sorted([USER, hashed])
    lines = [json.loads(line) for line in filled("export").stdout.splitlines()]
    assert {USER, hashed} <= {each["id"] for each in lines}
    assert len(lines) == len(export.splitlines()) + 1
    # Later events show the pair again.
    process(filled.settings(), [visit(3)])
    assert ids(filled, "lookup", EMAIL) == [hashed]
    assert filled("reconcile").exit_code == 0
    # The keyed hash names it as well.
    assert filled("links", "unpin", USER, hashed).exit_code == 0
    assert found(filled) == before
    assert filled("reconcile").exit_code == 0


def test_unpin_gives_the_bytes_of_before(filled: CommandLine) -> None:
    before = filled("export", "--provenance", "--reveal").stdout_bytes
    filled.json("links", "unlink", *PAIR, "--json")
    assert filled("export", "--provenance", "--reveal").stdout_bytes != before
    filled.json("links", "unpin", *PAIR, "--reason", "a mistake", "--json")
    assert filled("export", "--provenance", "--reveal").stdout_bytes == before
    again = filled("links", "unpin", *PAIR)
    assert (again.exit_code, "no pin" in again.stderr) == (3, True)


def test_an_export_of_fragments_knows_no_persons(filled: CommandLine) -> None:
    persons = {each["id"]: each for each in filled.json("export", "--provenance")}
    output = filled.folder / "fragments.jsonl"
    assert filled("export", "--fragments", "--provenance", "--output", output).exit_code == 0
    lines = output.read_text().splitlines()
    assert lines == filled("export", "--fragments", "--provenance").stdout.splitlines()
    fragments = {each["id"]: each for each in map(json.loads, lines)}
    with wiring.opened_to_read(filled.settings()) as resources:
        assert list(fragments) == list(resources.store.ids())
    assert len(fragments) == len(persons) + 1
    (other,) = fragments.keys() - persons.keys()
    of_order = fragments[other]["attributes"]
    assert "orders" in of_order
    assert "orders" not in fragments[USER]["attributes"]
    assert persons[USER]["attributes"]["orders"] == of_order["orders"]
    assert [each["type"] for each in fragments[other]["identifiers"]] == ["email"]


def test_a_pin_joins_what_no_event_does(filled: CommandLine) -> None:
    process(filled.settings(), [visit(1, OTHER, "canary.two@example.com")])
    (done,) = filled.json("links", "pin", USER, OTHER, "--decision", "always", "--who", "jo", "--json")
    assert [each["id"] for each in done["after"]] == [USER]
    assert {USER, OTHER} <= set(done["after"][0]["identifiers"])
    assert ids(filled, "lookup", OTHER) == ids(filled, "lookup", USER) == [USER]
    assert ids(filled, "search", "activity.platform=canary-platform") == [USER]
    shown = filled("explain", USER, USER, OTHER).stdout
    assert f"  {OTHER}: pinned always by jo at " in shown
    # The newest decision counts.
    assert filled("links", "unlink", OTHER, USER).exit_code == 0
    assert ids(filled, "lookup", OTHER) == [OTHER]


def test_a_dry_run_changes_nothing(filled: CommandLine) -> None:
    before, export = found(filled), filled("export", "--provenance").stdout
    (wet,) = filled.json("links", "unlink", *PAIR, "--dry-run", "--json")
    assert (wet["dry_run"], len(wet["before"]), len(wet["after"])) == (True, 1, 2)
    assert "would be pinned never" in filled("links", "unlink", *PAIR, "--dry-run").stdout
    assert (found(filled), filled("export", "--provenance").stdout) == (before, export)
    with wiring.opened_to_read(filled.settings()) as resources:
        assert list(resources.store.pins()) == []
        assert resources.store.outbox() == []
    (done,) = filled.json("links", "unlink", *PAIR, "--json")
    assert (done["before"], done["after"]) == (wet["before"], wet["after"])


def test_pairs_of_a_file(filled: CommandLine, tmp_path: Path) -> None:
    process(filled.settings(), [visit(1, OTHER, "canary.two@example.com")])
    file = tmp_path / "pairs.txt"
    file.write_text(f'{USER} {EMAIL}\n\n["{OTHER}", "email:Canary.Two@example.com"]\n')
    (done,) = filled.json("links", "unlink", "--file", file, "--json")
    assert len(done["pins"]) == 2
    assert MAIL not in json.dumps(done)
    file.write_text(f"{USER} {EMAIL}\n{USER} email:nobody@example.com\n")
    unknown = filled("links", "unpin", "--file", file)
    assert unknown.exit_code == 3
    assert f"{file}:2: the second identifier: no profile has this identifier" in unknown.stderr
    file.write_text(f"{USER}\n")
    assert filled("links", "unpin", "--file", file).exit_code == 2
    assert filled("links", "unpin", USER, "--file", file).exit_code == 2
    with wiring.opened_to_read(filled.settings()) as resources:
        assert {each.decision for each in resources.store.pins()} == {"never"}


def test_the_links_of_a_search_are_pairs_to_unlink(filled: CommandLine) -> None:
    words = ("links", "list", "activity.platform=canary-platform", "--type", "email")
    (link,) = filled.json(*words)
    assert link["pair"] == sorted(link["pair"])
    assert USER in link["pair"]
    assert MAIL not in json.dumps(link)
    assert not filled.json(*words[:3], "--type", "device_id")
    assert len(filled.json("links", "list")) >= 1
    done = filled("links", "unlink", "--file", "-", "--json", given=json.dumps(link).encode())
    assert len(json.loads(done.stdout)["pins"]) == 1
    assert not filled.json(*words)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("links", "show", "user_id:nobody"), 3),
        (("links", "unlink", USER, "user_id:nobody"), 3),
        (("links", "unlink", USER, USER), 2),
        (("links", "unlink", USER, "nobody"), 2),
        (("links", "unlink", USER), 2),
        (("explain", "user_id:nobody"), 3),
        (("explain", USER, EMAIL), 2),
    ],
)
def test_what_cannot_be_done(words: tuple[str, ...], code: int, filled: CommandLine) -> None:
    assert filled(*words).exit_code == code


def test_links_show_evidence_refusals_and_pins(filled: CommandLine) -> None:
    # A second customer with the same address: it is nobody's until somebody decides.
    process(filled.settings(), [visit(4, OTHER)])
    (nobody,) = ids(filled, "lookup", EMAIL)
    assert nobody not in (USER, OTHER)
    filled.json("links", "unlink", OTHER, EMAIL, "--who", "jo", "--why", "two people", "--json")
    assert ids(filled, "lookup", EMAIL) == [USER]
    (shown,) = filled.json("links", "show", USER, "--json")
    (accepted,) = [each for each in shown["accepted"] if USER in each["pair"]]
    (evidence,) = accepted["evidence"]
    assert (evidence["source"], evidence["strength"]) == ("segment", 1)
    assert evidence["oldest"]["event"] == "visit-1"
    assert evidence["newest"] == {
        "event": "visit-2",
        "ordinal": 1709337600000,
        "spec": "shop-segment",
        "spec_version": 1,
    }
    (refused,) = shown["refused"]
    assert refused["rule"] == "never"
    assert [(each["who"], each["why"]) for each in shown["pins"]] == [("jo", "two people")]
    text = filled("links", "show", USER).stdout
    assert "1 refused link" in text
    assert "pinned never by jo" in text
    assert MAIL not in text


def test_explain_in_every_format(filled: CommandLine) -> None:
    process(filled.settings(), [visit(4, OTHER)])
    filled.json("links", "unlink", OTHER, EMAIL, "--json")
    text = filled("explain", USER).stdout
    assert text.startswith(f"{USER}\n  email:~")
    assert "event visit-1 (ordinal 1709251200000, spec shop-segment@1) to event visit-2" in text
    assert "never" in text
    (path,) = filled.json("explain", USER, EMAIL, USER, "--format", "json")
    assert [each["to"] for each in path["path"]] == [USER]
    (apart,) = filled.json("explain", USER, USER, OTHER, "--format", "json")
    assert apart["path"] == []
    assert apart["refused"][0]["rule"] == "never"
    assert "no accepted link leads from here" in filled("explain", USER, USER, OTHER).stdout
    dot = filled("explain", USER, "--format", "dot").stdout
    assert dot.startswith("graph {\n")
    assert '[label="never", style=dashed];' in dot
    mermaid = filled("explain", USER, "--format", "mermaid").stdout
    assert mermaid.startswith("flowchart LR\n")
    assert '-.-|"never"|' in mermaid
    assert MAIL not in text + dot + mermaid


def test_explain_names_the_links_that_hold_two_together(filled: CommandLine) -> None:
    third = "user_id:canary-user-4713"
    process(filled.settings(), [visit(1, third, "canary.three@example.com")])
    filled.json("links", "pin", USER, third, "--decision", "always", "--json")
    mail = "email:canary.three@example.com"
    (path,) = filled.json("explain", USER, EMAIL, mail, "--format", "json")
    assert [each["splits"] for each in path["path"]] == [True, True, True]
    shown = filled("explain", USER, EMAIL, mail).stdout
    assert "3 of 3 links would split them if unlinked\n" in shown
    assert sum("shown by one event" in line for line in shown.splitlines()) == 1
    with wiring.opened_to_read(filled.settings()) as resources:
        assert {each.decision for each in resources.store.pins()} == {"always"}


def test_the_page_shows_what_they_print(filled: CommandLine) -> None:
    ann = "ann@x.org"
    given = [
        visit(1, "user_id:7", ann),
        visit(2, "user_id:7", ann),
        purchase(7, ann),
        visit(4, "user_id:8", ann),
        visit(5, "user_id:9", "bob@x.org"),
        visit(6, "user_id:10", "bob@x.org"),
    ]
    process(filled.settings(), given)
    (rules,) = re.findall(
        r"```json\n([^`]*)```\n\n```sh\nidgraph rules preview", (DOCS / "identity.md").read_text()
    )
    Path("rules.json").write_text(rules)
    pattern = "idgraph (links|explain|rules preview) "
    shown = [each for each in steps("identity.md") if re.match(pattern, each.commands)]
    assert len(shown) == 7
    for each in shown:
        result = filled(*shlex.split(each.commands)[1:])
        assert result.exit_code == 0
        assert matches(each.output, result.stdout), result.stdout


def test_with_the_index_away_the_outbox_has_it(filled: CommandLine, monkeypatch: Any) -> None:
    def away(*_: object) -> Any:
        raise ProfileIndexError("the index is away")

    with monkeypatch.context() as patch:
        patch.setattr(TantivyProfileIndex, "writing", away)
        result = filled("links", "unlink", *PAIR)
    assert result.exit_code == 0
    assert "the decision is stored" in result.stderr
    with wiring.opened_to_read(filled.settings()) as resources:
        assert len(resources.store.outbox()) == 2
    (hashed,) = ids(filled, "lookup", EMAIL)
    assert hashed != USER
    process(filled.settings(), [])
    assert ids(filled, "search", f"identity.email={MAIL}") == sorted([hashed, USER])


def test_an_erasure_forgets_pins_of_the_person(filled: CommandLine) -> None:
    process(
        filled.settings(), [visit(1, OTHER, "canary.two@example.com"), purchase(2, "canary.two@example.com")]
    )
    filled.json("links", "unlink", USER, OTHER, "--why", "two people", "--json")
    filled.json("links", "unlink", OTHER, "email:canary.two@example.com", "--json")
    assert filled("erase", USER, "--yes").exit_code == 0
    with wiring.opened_to_read(filled.settings()) as resources:
        (kept,) = resources.store.pins()
    assert OTHER in kept[:2]
    assert "two people" not in kept


def test_history_says_who_owned_an_identifier_when(filled: CommandLine) -> None:
    filled.json("links", "unlink", *PAIR, "--json")
    (hashed,) = ids(filled, "lookup", EMAIL)
    moves = [each for each in filled.json("links", "history") if each["fragment"] == hashed]
    assert [(each["kind"], each["previous"], each["profile"]) for each in moves] == [
        ("merged", hashed, USER),
        ("split", USER, hashed),
    ]
    assert filled.json("links", "history", "--after", moves[0]["cursor"]) == [moves[1]]
    assert list(moves[0]) == sorted(moves[0])
    (shown,) = filled.json("links", "history", EMAIL, "--json")
    assert shown["identifier"] == hashed
    periods = {each["fragment"]: each["periods"] for each in shown["fragments"]}
    assert periods == {
        USER: [{"profile": USER, "from": None, "to": None}],
        hashed: [
            {"profile": hashed, "from": None, "to": moves[0]["at"]},
            {"profile": USER, "from": moves[0]["at"], "to": moves[1]["at"]},
            {"profile": hashed, "from": moves[1]["at"], "to": None},
        ],
    }
    text = filled("links", "history", EMAIL).stdout
    assert f"    from {moves[1]['at']} until now: {hashed}\n" in text
    assert MAIL not in text
    assert filled("links", "history", "email:nobody@example.com").exit_code == 3
    assert filled("links", "history", EMAIL, "--after", "1").exit_code == 2
    assert filled("links", "history", "--after", "x").exit_code == 2


def test_of_an_erased_person_the_history_keeps_hashes(filled: CommandLine) -> None:
    before = filled.json("links", "history")
    assert USER in {each["profile"] for each in before}
    (receipt,) = filled.json("erase", USER, "--yes", "--json")
    after = filled.json("links", "history")
    assert [each["cursor"] for each in after] == [each["cursor"] for each in before]
    (move,) = [new for old, new in zip(before, after, strict=True) if old["profile"] == USER]
    assert {move["fragment"], move["profile"]} <= {f"~{each}" for each in receipt["fragments"]}
    assert USER not in json.dumps(after)
