"""`idgraph seal`: what is protected now is in no file any more, and every value is where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.files import write_atomically
from idgraph.model.fragments import Kind
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import FragmentWrite, scan_all
from merge.fragments import FragmentState
from tests.app.conftest import CommandLine
from tests.app.processes import on_a_terminal, program
from tests.canaries import places
from tests.index_words import versions_with
from tests.ingestion.stages.test_map_stage import WHOLE, event, passing
from tests.retail import UNDETECTED, Pipeline, attribute, attributes, durable_keys, order, records, snapshot

ROOT = Path(__file__).parents[2]
STREET, NAME, CITY = "4711 Canaryrow", "Zitronengelb", "Canaryville"
OPEN = [each for each in attributes() if each.path == "identity.email"]
BEFORE = snapshot(1, declared=OPEN, defaults=UNDETECTED)
AFTER = snapshot(2)
PERSON = order(
    1,
    900,
    customer={"email": "ann@example.com", "name": {"first": NAME, "last": "Lee"}},
    shipping={"line1": STREET, "city": CITY, "country": "US"},
)


def knows(idgraph: CommandLine, known: MetadataSnapshot) -> None:
    """Leave a snapshot behind as a flow does."""
    settings = idgraph.settings()
    settings.flow_state().mkdir(parents=True, exist_ok=True)
    kept = {"etag": f'"{known.version}"', "snapshot": known.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(settings), json.dumps(kept).encode())


@pytest.fixture
def stored(with_keys: CommandLine) -> CommandLine:
    """Real events, and one person's twice, stored before anything but e-mail addresses was protected."""
    settings = with_keys.settings()
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=BEFORE)
        pipeline.process([*records(100), PERSON])
        # An earlier state of it stays in the index's segments, and in free pages.
        pipeline.process([order(1, 901, order_id="R2", shipping={"line1": f"{STREET} 2"})])
        pipeline.data_keys.close()
    knows(with_keys, AFTER)
    return with_keys


def revealed(idgraph: CommandLine) -> list[Any]:
    return idgraph.json("export", "--reveal", "--provenance")


def plain_values(idgraph: CommandLine, under: MetadataSnapshot = AFTER) -> int:
    with wiring.opened(idgraph.settings()) as resources:
        wanted = {each.path for each in under.attributes if each.is_protected}
        return sum(
            register.kind is Kind.PLAIN and path in wanted
            for fragment in scan_all(resources.store)
            for path, register in FragmentState.decode(fragment.state).registers.items()
        )


def test_no_file_holds_what_is_protected_now_and_nothing_else_changed(stored: CommandLine) -> None:
    directory = stored.settings().directory
    before = revealed(stored)
    held = {name for name, _ in places(directory, [STREET, NAME])}
    assert "profiles.db" in held
    assert versions_with(directory / "index", NAME), "the index holds it as well"
    result = stored("seal")
    assert result.exit_code == 0, result.output
    assert places(directory, [STREET, NAME]) == []
    assert versions_with(directory / "index", NAME) == []
    assert {name for name, _ in places(directory, [CITY])} >= {"profiles.db"}, "a canary is looked for well"
    assert revealed(stored) == before
    assert "identity.name.first" in result.stdout
    assert result.stdout.splitlines()[-1].endswith(" sealed")
    assert stored.json("search", "--json", "Zitronengelb") == []
    again = stored("seal")
    assert again.stdout == "0 values of 0 profiles sealed\n"


def test_after_a_reindex_no_version_of_the_index_holds_it_either(stored: CommandLine) -> None:
    assert stored("reindex").exit_code == 0
    folder = stored.settings().directory / "index"
    # The policy of today leaves it out of the new version.
    assert versions_with(folder, NAME) == []
    assert stored("seal").exit_code == 0
    assert versions_with(folder, NAME) == []
    assert places(stored.settings().directory, [STREET, NAME]) == []


def test_a_dry_run_says_what_would_be_sealed_and_changes_nothing(stored: CommandLine) -> None:
    (reported,) = stored.json("seal", "--dry-run", "--json")
    assert plain_values(stored) > 0
    (done,) = stored.json("seal", "--json")
    assert reported == done
    assert done["values"]["identity.name.first"] > 0
    assert (done["snapshot"], done["failed"], done["readable_names"]) == (2, 0, {})
    assert plain_values(stored) == 0
    assert stored.json("seal", "--dry-run", "--json")[0]["values"] == {}


def test_a_key_that_looks_sensitive_is_reported_and_not_shown(with_keys: CommandLine) -> None:
    settings = with_keys.settings()
    specs = [passing(WHOLE)]
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        early = snapshot(1, specs=specs, defaults=UNDETECTED)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=early)
        pipeline.process([event(1, prefs={"bob@example.com": 1}, a="x")])
        pipeline.data_keys.close()
    knows(with_keys, snapshot(2, specs=specs))
    result = with_keys("seal")
    assert result.exit_code == 1
    assert "1 profile with sensitive keys in the clear" in result.stderr
    assert "bob@" not in result.output


def test_a_killed_sealing_goes_on_at_the_next_run(stored: CommandLine) -> None:
    before = revealed(stored)
    (reported,) = stored.json("seal", "--dry-run", "--json")
    process = subprocess.Popen(program(stored, "seal", "--rate", "1"), cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    total = plain_values(stored)
    while plain_values(stored) == total:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert 0 < plain_values(stored) < total
    assert revealed(stored) == before
    (rest,) = stored.json("seal", "--json")
    (job,) = stored.json("jobs", "list", "--kind", "re-encrypt", "--json")
    assert job["state"] == "done"
    assert job["counts"]["fragments"] == rest["fragments"]
    # A page that was done and not counted when it was killed is not counted again.
    assert 0 < rest["fragments"] <= reported["fragments"]
    assert revealed(stored) == before
    assert places(stored.settings().directory, [STREET, NAME]) == []


def test_names_that_are_protected_now_are_hashed_and_stand_in_no_file(stored: CommandLine) -> None:
    closed = [*attributes(), attribute("identity.anonymousId", encryption="protected")]
    with wiring.opened(stored.settings()) as resources:
        held = {each for f in scan_all(resources.store) for each in resources.store.identifiers(f.id)}
    names = sorted(each.partition(":")[2] for each in held if each.startswith("anonymous_id:"))
    # A device id that another attribute shows as well is no secret of this one.
    others = {each.partition(":")[2] for each in held if not each.startswith("anonymous_id:")}
    alone = [name for name in names if name not in others]
    assert len(alone) > 5
    directory = stored.settings().directory
    assert {name for name, _ in places(directory, alone)} >= {"profiles.db"}
    knows(stored, snapshot(3, declared=closed))
    before = stored.json("export", "--reveal", "--provenance")
    (reported,) = stored.json("seal", "--dry-run", "--json")
    result = stored("seal")
    assert result.exit_code == 0, result.output
    assert (
        f"identifiers of type anonymous_id of {reported['renamed']['anonymous_id']} profiles hashed"
        in result.stdout
    )
    assert places(directory, [*alone, STREET, NAME]) == []
    after = stored.json("export", "--reveal", "--provenance")
    assert sorted(map(str, after)) == sorted(map(str, before))
    found = stored.json("lookup", "--json", f"anonymous_id:{alone[0]}")
    assert found


def test_the_profiles_with_names_in_the_clear_are_listed(stored: CommandLine, tmp_path: Path) -> None:
    """Found by a new user: asked to erase these profiles, but not which."""
    closed = [*attributes(), attribute("identity.anonymousId", encryption="protected")]
    knows(stored, snapshot(3, declared=closed))
    file = tmp_path / "names.jsonl"
    reported = stored("seal", "--dry-run", "--json", "--list-names", file)
    count = json.loads(reported.stdout)["renamed"]["anonymous_id"]
    listed = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [each["types"] for each in listed] == [["anonymous_id"]] * count
    assert file.stat().st_mode & 0o777 == 0o600
    ids = [each["fragment"] for each in listed]
    assert not any(each in reported.output for each in ids), "names are in the file alone"
    assert stored("seal", "--dry-run", "--list-names", file).exit_code == 2
    assert stored.json("seal", "--json")[0]["renamed"] == {"anonymous_id": count}
    assert stored.json("seal", "--json")[0]["renamed"] == {}


def test_a_damaged_fragment_is_reported_and_the_others_are_sealed(stored: CommandLine) -> None:
    with wiring.opened(stored.settings()) as resources:
        (first,) = resources.store.scan(limit=1)
        resources.store.write([FragmentWrite(first.id, first.version, b"damaged", frozenset())])
    result = stored("seal", "--json")
    assert result.exit_code == 1
    reported = json.loads(result.stdout)
    assert (reported["failed"], reported["named"]) == (1, [first.id])
    assert "1 profile cannot be sealed" in result.stderr
    assert plain_values_of_others(stored, first.id) == 0


def plain_values_of_others(idgraph: CommandLine, damaged: str) -> int:
    with wiring.opened(idgraph.settings()) as resources:
        return sum(
            register.kind is Kind.PLAIN and path.startswith("identity.name")
            for fragment in scan_all(resources.store)
            if fragment.id != damaged
            for path, register in FragmentState.decode(fragment.state).registers.items()
        )


def test_without_metadata_there_is_nothing_to_seal_by(with_keys: CommandLine) -> None:
    assert with_keys("seal").exit_code in (2, 5)


def test_a_terminal_shows_a_bar(stored: CommandLine) -> None:
    screen, said = on_a_terminal(program(stored, "seal"))
    assert " sealed" in said
    assert "━".encode() in screen
