"""`idgraph store create`: tables, and what an earlier version kept in files beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing

import pytest

from idgraph.app.adapters.shared_state import household_log, open_documents, shared_flows, tombstone_keeper
from idgraph.model.flows import FlowPause
from idgraph.model.households import HouseholdEntry
from idgraph.model.tombstones import Tombstone
from sinks.tombstone_file import TombstoneFile
from tests.app.conftest import CommandLine
from tests.servers.dynamodb import require_dynamodb


def on_dynamodb(shell: CommandLine) -> None:
    prefix = hashlib.sha256(str(shell.folder).encode()).hexdigest()[:20]
    with (shell.folder / "idgraph.toml").open("a") as config:
        config.write(
            f'[store]\nkind = "dynamodb"\nregion = "eu-central-1"\ntable_prefix = "t{prefix}"\n'
            f'endpoint = "{require_dynamodb()}"\n'
        )


@pytest.fixture
def left(filled: CommandLine) -> CommandLine:
    """What an earlier version had in its directory, although its profiles are in DynamoDB."""
    settings = filled.settings()
    with closing(household_log(settings)) as log:
        for _ in range(100):
            log.append("h", joined)
    with shared_flows(settings) as flows:
        flows.pause("shop", FlowPause(who="ann", why="a move", at_ms=1))
    file = TombstoneFile(settings.directory / "tombstones.jsonl")
    with file.alone():
        file.append({b"a" * 16: Tombstone(5, 7)})
    with closing(open_documents(settings)) as documents:
        documents.write("webhooks/crm/place.json", b"a place")
    assert filled("keys", "add").exit_code == 0
    return filled


def joined(known: Sequence[HouseholdEntry]) -> list[HouseholdEntry]:
    return [HouseholdEntry("h", str(len(known)), "user_id:1", "k", 1, "joined", {"a": len(known)})]


def test_what_an_earlier_version_left_is_refused_until_it_is_moved(left: CommandLine) -> None:
    letters = left.json("dead-letters", "list", "--json")
    (audited,) = left.json("audit", "verify", "--json")
    with closing(household_log(left.settings())) as log:
        entries = log.read("h")
    assert (len(letters), audited["entries"], len(entries)) == (2, 2, 100)
    on_dynamodb(left)
    refused = left("dead-letters", "drop", letters[0]["id"])
    assert refused.exit_code == 1
    assert "dead-letters.db is of an earlier version" in refused.stderr
    assert "run `idgraph store create` here" in refused.stderr

    for turn in range(2):
        assert left("store", "create").exit_code == 0
        assert left.json("dead-letters", "list", "--json") == letters
        shown = left("dead-letters", "show", letters[0]["id"], "--reveal").stdout
        assert "cannot be opened" not in shown
        settings = left.settings()
        with closing(household_log(settings)) as log:
            assert (log.read("h"), log.of(["k"])) == (entries, ["h"])
        with shared_flows(settings) as flows:
            # The second time somebody has resumed it.
            assert flows.pause_of("shop") == (None if turn else FlowPause(who="ann", why="a move", at_ms=1))
            flows.resume("shop")
        keeper = tombstone_keeper(settings)
        with keeper.alone():
            assert keeper.read() == {b"a" * 16: Tombstone(5, 7)}
        with closing(open_documents(settings)) as documents:
            assert documents.read("webhooks/crm/place.json") == b"a place"
    (now,) = left.json("audit", "verify", "--json")
    assert now["entries"] > audited["entries"]
    assert now["broken_line"] is None
    kept = {each.name for each in settings.directory.glob("*.moved")}
    assert {
        "dead-letters.db.moved",
        "households.db.moved",
        "tombstones.jsonl.moved",
        "audit.jsonl.moved",
    } <= kept
    assert left("dead-letters", "drop", letters[0]["id"]).exit_code == 0


def test_without_tables_no_keyring_is_made(idgraph: CommandLine) -> None:
    on_dynamodb(idgraph)
    refused = idgraph("keys", "init")
    assert refused.exit_code == 1
    assert "`idgraph store create` makes it" in refused.stderr
    assert not idgraph.settings().keyring_file().exists()
    assert idgraph("store", "create").exit_code == 0
    assert idgraph("keys", "init").exit_code == 0
    (audited,) = idgraph.json("audit", "verify", "--json")
    assert audited["entries"] == 1
