"""`idgraph dead-letters`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.model.dead_letters import DeadLetterReason
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from sinks.sqlite.dead_letters import SqliteDeadLetters
from tests.app.conftest import CommandLine
from tests.retail import EXAMPLE, Pipeline, durable_keys, order, raw, snapshot

pytestmark = pytest.mark.slow


def ids(idgraph: CommandLine, *words: str) -> list[str]:
    return [dead_letter["id"] for dead_letter in idgraph.json("dead-letters", "list", "--json", *words)]


def test_list_for_people(filled: CommandLine) -> None:
    result = filled("dead-letters", "list")
    assert result.exit_code == 0
    assert "missing_id" in result.stdout
    assert "file:orders/x.jsonl#70" in result.stdout
    assert "shop-orders@1" in result.stdout
    assert "missing_id: 1" in result.stderr


def with_files(idgraph: CommandLine) -> None:
    """Three of each of two files whose names begin alike, each set aside later than the one before."""
    with wiring.opened(idgraph.settings()) as resources:
        (one,) = resources.dead_letters.scan("missing_id")
        names = [f"file:orders/{name}.jsonl#{line}" for line in (1, 2, 3) for name in ("may-1", "may-10")]
        resources.dead_letters.put(
            [
                one._replace(id=f"{9 - age}", position=name, set_aside_at=one.set_aside_at + 1000 * (1 + age))
                for age, name in enumerate(names)
            ]
        )


@pytest.mark.parametrize("narrowed", [[], ["--source", "orders"], ["--reason", "missing_id"]])
def test_a_list_has_the_newest_first_and_when_it_was_set_aside(
    narrowed: list[str], filled: CommandLine
) -> None:
    with_files(filled)
    assert ids(filled, *narrowed)[:6] == ["4", "5", "6", "7", "8", "9"]
    found = filled.json("dead-letters", "list", "--json", "--limit", "1", *narrowed)
    moment = found[0]["set_aside"][: len("2026-11-28T15:20:31")]
    assert moment in filled("dead-letters", "list", "--limit", "1", *narrowed).stdout


def test_dead_letters_of_one_file_are_listed_and_dropped_and_no_others(filled: CommandLine) -> None:
    with_files(filled)
    for name in ("may-1.jsonl", "orders/may-1.jsonl"):
        assert ids(filled, "--file", name) == ["5", "7", "9"]
    listed = filled("dead-letters", "list", "--file", "may-1.jsonl", "--limit", "2").stderr
    assert "missing_id: 3\n" in listed
    assert "2 of 3" in listed
    for other in ("may", "1.jsonl", "may-1", "ders/may-1.jsonl", "may-1.jsonl#1"):
        assert ids(filled, "--file", other) == []
    assert filled("dead-letters", "drop", "--file", "may-1.jsonl", "4", "9").stdout == "dropped 1\n"
    assert filled("dead-letters", "drop", "--file", "may-1.jsonl").stdout == "dropped 2\n"
    assert ids(filled, "--file", "may-10.jsonl") == ["4", "6", "8"]
    for command in ("list", "replay", "drop"):
        assert filled("dead-letters", command, "--file", "").exit_code == 2
    assert len(ids(filled)) == 5


def test_list_of_none(with_keys: CommandLine) -> None:
    assert with_keys("dead-letters", "list").stdout == "no dead letters\n"
    assert ids(with_keys) == []


def test_a_list_counts_what_was_asked_for(filled: CommandLine) -> None:
    chosen = filled("dead-letters", "list", "--reason", "missing_id")
    assert chosen.stderr == "missing_id: 1\n"
    for none in (["--source", "segment"], ["--reason", "no_spec"]):
        result = filled("dead-letters", "list", *none)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "no such dead letters\n", "")


def test_list_by_reason_and_source_and_at_most_so_many(filled: CommandLine) -> None:
    assert len(ids(filled)) == 2
    assert len(ids(filled, "--reason", "missing_id")) == 1
    assert len(ids(filled, "--source", "orders")) == 2
    assert ids(filled, "--source", "segment") == []
    assert len(ids(filled, "--limit", "1")) == 1


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_a_list_says_when_it_shows_only_the_first(form: list[str], filled: CommandLine) -> None:
    settings = filled.settings()
    with wiring.opened(settings) as resources:
        (dead_letter,) = resources.dead_letters.scan("missing_id")
        resources.dead_letters.put(
            [dead_letter._replace(id=f"{number:02}", source="segment") for number in range(25)]
        )

    def reported(*words: str) -> str:
        return filled("dead-letters", "list", *form, *words).stderr

    assert reported().endswith("20 of 27; more with --limit\n")
    assert reported("--reason", "missing_id").endswith("20 of 26; more with --limit\n")
    assert reported("--source", "segment", "--limit", "24").endswith("24 of 25; more with --limit\n")
    assert reported("--source", "orders", "--limit", "1").endswith("1 of 2; more with --limit\n")
    for all_of_them in (["--limit", "27"], ["--source", "orders"], ["--reason", "not_json"]):
        assert "more with" not in reported(*all_of_them)


def test_show_hides_the_record_until_it_is_asked_for(filled: CommandLine) -> None:
    (dead_letter,) = ids(filled, "--reason", "missing_id")
    hidden = filled("dead-letters", "show", dead_letter)
    assert hidden.exit_code == 0
    assert "reason: missing_id" in hidden.stdout
    assert "p1@example.com" not in hidden.stdout
    (shown,) = filled.json("dead-letters", "show", dead_letter, "--reveal", "--json")
    assert json.loads(shown["record"])["customer"]["email"] == "p1@example.com"


def test_show_what_is_not_there(filled: CommandLine) -> None:
    result = filled("dead-letters", "show", "none")
    assert result.exit_code == 3
    assert "no such dead letter" in result.stderr


def test_what_a_dead_letter_has_not_is_shown_so(filled: CommandLine) -> None:
    with wiring.opened(filled.settings()) as resources:
        (dead_letter,) = resources.dead_letters.scan("missing_id")
        resources.dead_letters.put([dead_letter._replace(spec=None)])
    assert "spec: -\n" in filled("dead-letters", "show", dead_letter.id).stdout


@pytest.mark.parametrize("command", ["list", "replay", "drop"])
def test_a_source_without_a_name_is_neither_all_nor_none(command: str, filled: CommandLine) -> None:
    result = filled("dead-letters", command, "--source", "")
    assert (result.exit_code, "name a source" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_nothing_happens_to_dead_letters_that_nobody_named(command: str, filled: CommandLine) -> None:
    result = filled("dead-letters", command)
    assert result.exit_code == 2
    assert "--all" in result.stderr
    for more in (ids(filled)[:1], ["--reason", "missing_id"], ["--source", "orders"]):
        assert filled("dead-letters", command, "--all", *more).exit_code == 2
    assert len(ids(filled)) == 2


@pytest.mark.parametrize("command", ["replay", "drop"])
def test_a_dead_letter_that_is_not_there(command: str, filled: CommandLine) -> None:
    result = filled("dead-letters", command, "none")
    assert result.exit_code == 3
    assert "error: no such dead letter: none" in result.stderr


def test_one_that_is_not_there_keeps_no_other_from_being_dropped(filled: CommandLine) -> None:
    (dead_letter,) = ids(filled, "--reason", "missing_id")
    result = filled("dead-letters", "drop", "none", dead_letter)
    assert (result.exit_code, result.stdout) == (3, "dropped 1\n")
    assert "error: no such dead letter: none\n" in result.stderr
    assert dead_letter not in ids(filled)


def test_one_that_is_not_there_keeps_no_other_from_being_replayed(filled: CommandLine) -> None:
    (dead_letter,) = ids(filled, "--reason", "missing_id")
    result = filled("dead-letters", "replay", "none", dead_letter)
    assert result.exit_code == 1
    assert result.stdout == "replayed 0, still dead 1, to publish again 0, unreadable 0\n"
    assert "error: no such dead letter: none\n" in result.stderr


def test_one_that_goes_before_its_turn_is_reported(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ids(filled)
    get = SqliteDeadLetters.get

    def late(dead_letters: SqliteDeadLetters, name: str) -> Any:
        dead_letters.drop([second])
        return get(dead_letters, name)

    monkeypatch.setattr(SqliteDeadLetters, "get", late)
    result = filled("dead-letters", "replay", "--all")
    assert result.stdout == "replayed 0, still dead 1, to publish again 0, unreadable 0\n"
    assert f"removed meanwhile: {second}\n" in result.stderr
    assert ids(filled) == [first]


def test_ids_and_filters_must_both_hold(filled: CommandLine) -> None:
    (dead_letter,) = ids(filled, "--reason", "missing_id")
    assert filled("dead-letters", "drop", dead_letter, "--source", "segment").stdout == "dropped 0\n"
    assert len(ids(filled)) == 2


def test_with_the_last_dead_letter_of_a_fragment_that_is_not_stored_goes_its_key(filled: CommandLine) -> None:
    name = "user_id:set-aside"
    failure = CommitFailure(name, DeadLetterReason.REFUSED_BY_STORE, "", FragmentState())
    with wiring.opened(filled.settings()) as resources:
        writer, batch = DeadLetterWriter(resources.sealer), BatchAttempt("main/0", "attempt")
        resources.dead_letters.put(writer.of_failures([failure], 1, batch))
        resources.data_keys.fetch([name], create=True)
        resources.store.erase([name], 1)
    assert filled("dead-letters", "drop", "--reason", "missing_id").exit_code == 0
    with wiring.opened(filled.settings()) as resources:
        assert resources.data_keys.existing([name]) == {name}
    assert filled("dead-letters", "drop", "--reason", "refused_by_store").stdout == "dropped 1\n"
    with wiring.opened(filled.settings()) as resources:
        assert resources.data_keys.existing([name]) == set()
        assert name.encode() not in (filled.settings().directory / "data-keys.db").read_bytes()


def test_drop(filled: CommandLine) -> None:
    (dead_letter,) = ids(filled, "--reason", "missing_id")
    assert filled("dead-letters", "drop", dead_letter).stdout == "dropped 1\n"
    assert filled("dead-letters", "drop", "--all").stdout == "dropped 1\n"
    assert ids(filled) == []


def test_replay_under_a_mended_spec(served: CommandLine) -> None:
    settings = served.settings()
    with wiring.opened(settings) as resources:
        pipeline = Pipeline(settings.directory, durable_keys(settings.directory), snapshot=snapshot(specs=[]))
        resources.dead_letters.put(pipeline.map(order(1, 1), raw(b"{", 2)).dead_letters)
        pipeline.data_keys.close()
    assert served("attributes", "apply", EXAMPLE / "attributes.json").exit_code == 0
    assert served("specs", "apply", EXAMPLE / "specs" / "orders.json").exit_code == 0

    result = served("dead-letters", "replay", "--all")

    assert result.exit_code == 1
    assert result.stdout == "replayed 1, still dead 1, to publish again 0, unreadable 0\n"
    assert [dead_letter["reason"] for dead_letter in served.json("dead-letters", "list", "--json")] == [
        "not_json"
    ]
    (found,) = served.json("lookup", "email:p1@example.com", "--json")
    assert found["attributes"]["orders"]["last"]["total"] == 12.5
    discovered = [each["path"] for each in served.json("attributes", "search", "orders.last", "--json")]
    assert "orders.last.total" in discovered


def test_replay_while_the_service_is_away_goes_by_the_last_snapshot(filled: CommandLine) -> None:
    result = filled("dead-letters", "replay", "--all")
    assert result.exit_code == 1
    assert "replayed 0, still dead 2" in result.stdout


def test_replay_keeps_dead_letters_whose_attributes_nobody_could_be_told_of(filled: CommandLine) -> None:
    settings = filled.settings()
    settings.flow_token_file().write_text("a-token-for-the-tests")
    with wiring.opened(settings) as resources:
        pipeline = Pipeline(settings.directory, durable_keys(settings.directory), snapshot=snapshot(specs=[]))
        resources.dead_letters.put(pipeline.map(order(9, 90)).dead_letters)
        pipeline.data_keys.close()
    result = filled("dead-letters", "replay", "--reason", "no_spec")
    assert result.exit_code == 5
    assert "dead letters with new attributes stay" in result.stderr
    assert len(ids(filled, "--reason", "no_spec")) == 1


def test_replay_without_any_metadata_changes_nothing(filled: CommandLine) -> None:
    metadata_access.snapshot_file(filled.settings()).unlink()
    before = filled.json("dead-letters", "list", "--json")
    result = filled("dead-letters", "replay", "--all")
    assert result.exit_code == 5
    assert "start the metadata service" in result.stderr
    assert filled.json("dead-letters", "list", "--json") == before


def test_a_misspelled_reason_is_refused(filled: CommandLine) -> None:
    refused = filled("dead-letters", "replay", "--reason", "missing_idd")
    assert refused.exit_code == 2
    assert "missing_id" in refused.output
