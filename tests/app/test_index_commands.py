"""`idgraph reindex`, `idgraph reconcile` and `idgraph index`: beside what runs, killed, and read by scripts."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tantivy import FieldType, Query

from idgraph.app import wiring
from idgraph.app.flow_runner import _report_of_another_store
from idgraph.app.jobs.context import LocalJobContext
from idgraph.jobs.reindex import REINDEX, ReindexParameters
from idgraph.model import queries
from idgraph.model.index import IndexDocument
from idgraph.model.jobs import Requester
from sinks.tantivy.documents import SCHEMA
from sinks.tantivy.folder import IndexFolder
from tests.app.conftest import CommandLine
from tests.app.processes import on_a_terminal, program
from tests.canaries import content_of, files_below, seen
from tests.contracts.processes import ROOT

INDEX = "index"


def documents(idgraph: CommandLine) -> int:
    with wiring.opened(idgraph.settings()) as resources:
        return resources.index.count(queries.Query())


def lose_half(idgraph: CommandLine) -> int:
    """As a damaged disk may; gives how many are left."""
    folder = IndexFolder(idgraph.settings().directory / INDEX)
    half = Query.range_query(SCHEMA, "hash", FieldType.Unsigned, 0, 2**63)
    with folder.writing(), folder.writer(folder.in_use()) as (writer, _):
        writer.delete_documents_by_query(half)
    folder.close()
    return documents(idgraph)


def test_a_flow_says_that_the_index_is_of_a_store_that_was_lost(
    filled: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    settings = filled.settings()
    with wiring.opened(settings) as resources:
        _report_of_another_store(resources)
    assert caplog.messages == []
    for file in settings.directory.glob("profiles.db*"):
        file.unlink()
    # The documented way to build all profiles again.
    (settings.directory / "profiles.db").touch()
    with wiring.opened(settings) as resources:
        _report_of_another_store(resources)
    (reported,) = caplog.messages
    assert "`idgraph reindex`" in reported


def test_an_index_that_lost_something_is_made_anew(filled: CommandLine) -> None:
    whole = documents(filled)
    found = filled.json("search", "--json", "activity.platform=ios")
    assert lose_half(filled) < whole
    result = filled("reindex")
    assert result.exit_code == 0, result.output
    assert f"{whole} profiles indexed; index-000002 is in use" in result.stdout
    assert "index-000001 is deleted" in result.stdout
    assert filled.json("search", "--json", "activity.platform=ios") == found
    assert documents(filled) == whole
    (reported,) = filled.json("reindex", "--json", "--again")
    assert reported == {
        "version": "index-000003",
        "replaced": "index-000002",
        "profiles": whole,
        "resumed": False,
        "refused": 0,
        "fragments": [],
    }
    assert filled.json("index", "versions", "--json") == [
        {"name": "index-000003", "state": "in use", "documents": whole}
    ]


def test_an_index_that_is_gone_is_made_anew(filled: CommandLine) -> None:
    whole = documents(filled)
    shutil.rmtree(filled.settings().directory / INDEX)
    empty = filled("search", "--count")
    assert (empty.exit_code, empty.stdout) == (0, "0\n")
    assert "the index is empty" in empty.stderr
    assert "`idgraph reindex`" in empty.stderr
    assert filled("reindex").exit_code == 0
    assert documents(filled) == whole


@pytest.mark.parametrize("damaged", ["meta.json", "*.idx", "*.term", "*.fast", "*.store"])
def test_a_damaged_index_is_reported_with_what_brings_it_back(filled: CommandLine, damaged: str) -> None:
    whole = documents(filled)
    for file in (filled.settings().directory / INDEX).glob(f"index-*/{damaged}"):
        # In its place: tantivy may still have the old one mapped, and cut short it would end this process.
        file.unlink()
        file.write_bytes(b"damaged" * 10)
    reported = filled("search", "guitar")
    assert reported.exit_code == 1
    assert "`idgraph reindex` makes it again" in reported.stderr
    assert filled("reindex").exit_code == 0
    assert documents(filled) == whole
    assert filled("reconcile").exit_code == 0


def test_a_damaged_list_of_versions_is_reported_with_what_brings_it_back(filled: CommandLine) -> None:
    whole = documents(filled)
    folder = filled.settings().directory / INDEX
    (folder / "versions.json").write_bytes(b"damaged")
    for command in (("search", "guitar"), ("reindex",)):
        reported = filled(*command)
        assert reported.exit_code == 1
        assert "remove the folder, then run `idgraph reindex`" in reported.stderr
    shutil.rmtree(folder)
    assert filled("reindex").exit_code == 0
    assert documents(filled) == whole


def test_a_replaced_version_is_deleted(filled: CommandLine) -> None:
    assert filled("reindex").stdout.splitlines()[-1] == "index-000001 is deleted"
    listed = filled("index", "versions").stdout
    assert "index-000002  in use" in listed
    assert "index-000001" not in listed
    assert len(list((filled.settings().directory / INDEX).glob("index-*"))) == 1


@pytest.mark.process
def test_a_killed_one_goes_on_where_it_was(filled: CommandLine) -> None:
    whole = documents(filled)
    process = subprocess.Popen(program(filled, "reindex", "--rate", "1"), cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    # Documents alone are none to resume behind: the job says where after each page.
    while not any(
        each["done"] for each in filled.json("jobs", "list", "--json") if each["kind"] == "reindex"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert [each["state"] for each in listed(filled)] == ["in use", "being made"]
    assert documents(filled) == whole
    result = filled("reindex", "--json")
    assert "making index-000002 resumes after " in result.stderr
    reported = json.loads(result.stdout)
    assert (reported["resumed"], reported["profiles"], reported["version"]) == (True, whole, "index-000002")
    assert documents(filled) == whole
    assert filled("reconcile").exit_code == 0


def listed(idgraph: CommandLine) -> list[dict[str, object]]:
    return idgraph.json("index", "versions", "--json")


def test_one_at_a_time(filled: CommandLine) -> None:
    ada = Requester("ada")
    with LocalJobContext(filled.settings(), ada) as context:
        job = REINDEX.prepare(ReindexParameters(rate=10), context)
        assert job is not None
        with context.runner.started(job, ada) as run:
            result = filled("reindex")
            assert (result.exit_code, run.id in result.stderr) == (2, True)
    assert filled("reindex").exit_code == 0


@pytest.mark.parametrize("command", ["reindex", "reconcile"])
def test_without_metadata_nobody_knows_what_may_be_indexed(with_keys: CommandLine, command: str) -> None:
    result = with_keys(command)
    assert result.exit_code in (2, 5)
    assert "metadata" in result.stderr


def test_a_terminal_shows_a_bar_and_a_pipe_plain_words(filled: CommandLine) -> None:
    screen, said = on_a_terminal(program(filled, "reindex"))
    assert "is in use" in said
    assert "━".encode() in screen
    assert "━" not in filled("reindex").output


def test_drift_is_reported_mended_and_then_gone(filled: CommandLine) -> None:
    whole = documents(filled)
    (well,) = filled.json("reconcile", "--json")
    nothing = dict.fromkeys(("missing", "stale", "different", "orphaned", "ahead"), 0)
    assert well == {
        "profiles": whole,
        "documents": whole,
        "drift": nothing,
        "waiting": 0,
        "unreadable": 0,
        "repaired": 0,
        "left": 0,
        "fragments": {},
    }
    lost = whole - lose_half(filled)
    with wiring.opened(filled.settings()) as resources:
        resources.index.put([IndexDocument("user_id:nobody", 1, {"x": 1})])
    result = filled("reconcile")
    assert result.exit_code == 6
    assert "user_id:nobody" in result.stdout
    assert f"compared: {lost + 1} differ" in result.stdout
    assert "`idgraph reconcile --repair` repairs it" in result.stderr
    reported = filled("reconcile", "--json")
    assert (reported.exit_code, json.loads(reported.stdout)["drift"]) == (
        6,
        {**nothing, "missing": lost, "orphaned": 1},
    )
    repaired = filled("reconcile", "--repair")
    assert repaired.exit_code == 0, repaired.output
    assert f"{lost + 1} of {lost + 1} repaired" in repaired.stdout
    assert "no drift" in filled("reconcile").stdout
    assert documents(filled) == whole


def test_what_cannot_be_mended_is_reported_with_what_can(filled: CommandLine) -> None:
    with wiring.opened(filled.settings()) as resources:
        (first,) = resources.index.search(queries.Query(), 1).ids
        resources.index.put([IndexDocument(first, resources.index.versions([first])[first] + 5, {})])
    result = filled("reconcile", "--repair")
    assert result.exit_code == 6
    assert "`idgraph reindex` repairs it" in result.stderr
    assert filled("reindex").exit_code == 0
    assert filled("reconcile").exit_code == 0


@pytest.mark.process
def test_a_killed_comparison_goes_on_where_it_was(filled: CommandLine) -> None:
    lose_half(filled)
    (whole,) = [json.loads(filled("reconcile", "--json").stdout)]
    process = subprocess.Popen(program(filled, "reconcile", "--rate", "1"), cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while (job := filled.json("jobs", "list", "--json")[0])["state"] != "running" or not job["done"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    result = filled("reconcile", "--json")
    assert "comparing index and store resumes after " in result.stderr
    assert json.loads(result.stdout)["drift"] == whole["drift"]


def test_an_erased_person_is_in_no_version_and_in_no_file(filled: CommandLine, tmp_path: Path) -> None:
    (reported,) = filled.json("search", "--json", "--limit", "1", "activity.platform=ios")
    assert filled("reindex").exit_code == 0
    (before,) = [each["documents"] for each in listed(filled) if each["state"] == "in use"]
    assert filled("erase", "--fragment", reported["id"], "--yes").exit_code == 0
    assert isinstance(before, int)
    assert [each["documents"] for each in listed(filled)] == [before - 1]
    folder = filled.settings().directory / INDEX
    assert [each for each in files_below(folder) if seen(content_of(each), [reported["id"]])] == []


def test_only_dynamodb_has_streams(with_keys: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    result = with_keys("index", "follow")
    assert result.exit_code == 2
    assert 'only a store of kind "dynamodb" has streams' in result.stderr
    monkeypatch.setenv("IDGRAPH_INDEX__FED_BY", "streams")
    refused = with_keys("index", "versions")
    assert refused.exit_code == 2
    assert "fed_by" in refused.stderr
