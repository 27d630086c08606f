"""`idgraph erase`: nothing is left, nothing comes back, and the receipt names nobody."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from idgraph.app import wiring
from idgraph.app.adapters.shared_state import open_documents
from idgraph.app.settings.document import Settings
from idgraph.jobs.erase.erasure import Erasure
from idgraph.jobs.erase.receipt import receipt_hash
from idgraph.model.errors import ProfileIndexError, StoreError
from idgraph.model.events import RawRecord
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import Query
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone
from idgraph.model.triggers import LedgerLine
from profile_service.trigger_ledger import Message, TriggerLedger
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from sinks.tombstone_file import TombstoneFile
from tests.app.conftest import CommandLine, filled_by, keep_snapshot
from tests.canaries import places
from tests.lanes import long
from tests.retail import Pipeline, durable_keys, order, raw, records, snapshot

MAIL, STREET, ITEM, USER = "canary.one@example.com", "4711 Canaryrow", "canary-platform", "canary-user-4711"
CANARIES = (MAIL, STREET, ITEM, USER, "Zitronengelb")
EVERYTHING = ("fragments", "identifiers", "data_keys", "index_documents", "dead_letters")
DATABASES = ("profiles.db", "index", "dead-letters.db")


def segment(number: int, **changes: object) -> RawRecord:
    return raw(
        {
            "type": "identify",
            "userId": USER,
            "anonymousId": "anonymous-canary-user-4711",
            "messageId": f"canary-{number}",
            "timestamp": "2024-03-01T00:00:00Z",
            "platform": ITEM,
            "traits": {"email": f" {MAIL.upper()} ", "name": "Zitronengelb", "age": 30},
            **changes,
        },
        1000 + number,
        "segment",
    )


def person(number: int = 1) -> list[RawRecord]:
    """All that two systems know of one person: two fragments."""
    shipping = {"line1": STREET, "city": "Springfield", "country": "US"}
    customer = {"email": MAIL, "name": {"first": "Zitronengelb", "last": "Lee"}}
    return [segment(number), segment(number + 1), order(number, 900, customer=customer, shipping=shipping)]


def broken() -> list[RawRecord]:
    """Dead letters of that person: by a mapped identifier, by a raw value, cut off; and of somebody else."""
    return [
        segment(7, timestamp="2030-01-01T00:00:00Z"),
        order(2, 901, order_id=None, customer={"email": MAIL.upper()}),
        RawRecord("orders", "file:orders/x.jsonl#902", f'{{"customer": {{"email": "{MAIL}", "na'.encode()),
        order(3, 903, order_id=None),
    ]


def process(settings: Any, given: Iterable[RawRecord]) -> None:
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=snapshot())
        outputs = list(pipeline.map_stage().run(given))
        for output in outputs:
            resources.dead_letters.put(output.dead_letters)
            pipeline.commit_stage().run(output.encoded())
        pipeline.project()
        pipeline.data_keys.close()


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled_by(fill, tmp_path_factory.mktemp("filled"))


def fill(settings: Settings) -> None:
    keep_snapshot(settings, snapshot())
    process(settings, [*records(200), *person()])
    # An earlier state of it stays in the index's segments, and in free pages.
    process(settings, [*person(5), *broken()])


def seen(folder: Path, *more: str) -> list[tuple[str, str]]:
    """Where canaries stand in a folder's files."""
    return places(folder, (*CANARIES, *more))


def remains(folder: Path, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Where canaries and values of these ids stand in a folder's files, but for the keyed hashes that the audit log keeps:
    who was erased when, and why."""
    found = seen(folder, *(each.partition(":")[2] for each in ids))
    return [each for each in found if not (each[0] == "audit.jsonl" and each[1].startswith("~"))]


def export(idgraph: CommandLine) -> list[Any]:
    return idgraph.json("export", "--reveal", "--provenance")


def ids_of(idgraph: CommandLine) -> list[str]:
    """The fragments of the person."""
    settings = idgraph.settings()
    with wiring.opened(settings) as resources:
        reader = wiring.profile_reader(settings, resources)
        forms = {form for each in WHOM for form in reader.stored_forms(Identifier.parse(each))}
        return sorted(each.stored.id for person in reader.owning(forms).persons for each in person.members)


WHOM = (f"email:{MAIL}", f"user_id:{USER}")


def test_nothing_is_left_of_an_erased_person_and_all_of_the_others(filled: CommandLine) -> None:
    directory = filled.settings().directory
    ids = ids_of(filled)
    assert len(ids) == 2
    assert {name for name, _ in seen(directory)} >= {"profiles.db"}
    others = [line for line in export(filled) if line["id"] not in ids]
    (reported,) = filled.json(
        "erase", *WHOM, "--yes", "--json", "--receipt", directory.parent / "receipt.json"
    )
    assert export(filled) == others
    assert remains(directory.parent, ids) == []
    assert all(reported["counts"][place] for place in EVERYTHING)
    assert reported["counts"]["dead_letters"] == 3
    (left,) = filled.json("dead-letters", "list", "--json")
    assert left["position"].endswith("#903")


def test_the_receipt_names_nobody_and_shows_that_it_was_altered(
    filled: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_KEYS__BACKUP_DAYS", "7")
    file = tmp_path / "receipt.json"
    assert filled("erase", *WHOM, "--yes", "--receipt", file).exit_code == 0
    reported = json.loads(file.read_bytes())
    assert reported["hash"] == receipt_hash(reported)
    assert receipt_hash({**reported, "refused_until": 0}) != reported["hash"]
    day = datetime.fromisoformat(reported["erased_at"]).date() + timedelta(days=8)
    assert reported["complete_from"] == day.isoformat(), "the last backup of before is gone"
    assert len(reported["fragments"]) == 4, "two that were there, and the other forms of their names"
    assert not any(canary in file.read_text() for canary in CANARIES)
    assert file.stat().st_mode & 0o777 == 0o600
    assert filled("erase", *WHOM, "--fragment", "a:1", "--yes", "--receipt", file).exit_code == 2


def test_a_dry_run_says_what_would_go_and_changes_nothing(filled: CommandLine) -> None:
    before = export(filled)
    (reported,) = filled.json("erase", *WHOM, "--dry-run", "--json")
    assert export(filled) == before
    assert not (filled.settings().directory / "tombstones.jsonl").exists()
    (receipt,) = filled.json("erase", *WHOM, "--yes", "--json")
    assert [each["goes"] for each in reported.pop("dead_letters_found")] == [True] * 3
    assert len(reported.pop("found")) == reported["fragments"]
    assert reported.pop("elsewhere") == []
    assert receipt["counts"] == reported


def test_a_dry_run_lists_whom_and_which_identifier_led_there(filled: CommandLine) -> None:
    """Found by a new user: a fragment of somebody else has the address as its second one, and is not theirs."""
    mail = f"email:{MAIL}"
    process(filled.settings(), [segment(20, userId="somebody-else", anonymousId="anonymous-somebody-else")])
    assert filled("links", "unlink", "user_id:somebody-else", mail).exit_code == 0
    (reported,) = filled.json("erase", mail, f"user_id:{USER}", "--dry-run", "--json")
    found = {each["id"]: each["by"] for each in reported["found"]}
    # The address is protected: what is shown is its keyed hash, as in a look-up.
    (by_mail,) = found.keys() - {f"user_id:{USER}"}
    assert by_mail.startswith("email:~")
    assert found[f"user_id:{USER}"] == f"{by_mail}, user_id:{USER}"
    assert len(found) == reported["fragments"] == 2
    shown = filled("erase", mail, "--dry-run").stdout
    assert f"user_id:{USER}" in shown
    assert "user_id:somebody-else" not in shown
    assert [each["id"] for each in reported["elsewhere"]] == ["user_id:somebody-else"]
    (receipt,) = filled.json("erase", mail, f"user_id:{USER}", "--yes", "--json")
    assert len(receipt["asked"]) == 2


def test_dead_letters_that_may_be_of_others_stay_and_are_told(filled: CommandLine) -> None:
    """Found by a new user: a number of minutes took the dead letter of another customer."""
    others = [order(9, 910 + number, order_id=None, minutes=480) for number in range(2)]
    its_own = order(9, 912, order_id=None, shop={"customerId": "480"})
    process(filled.settings(), [*others, its_own])
    given = ("erase", "customer:480", "--fragment", "customer:480")
    (reported,) = filled.json(*given, "--dry-run", "--json")
    assert (reported["dead_letters"], reported["possible_dead_letters"]) == (1, 2)
    assert {(each["position"][-4:], each["goes"]) for each in reported["dead_letters_found"]} == {
        ("#910", False),
        ("#911", False),
        ("#912", True),
    }
    kept = {each["id"] for each in reported["dead_letters_found"] if not each["goes"]}
    shown = filled(*given, "--dry-run").stdout
    assert all(each["id"] in shown and each["why"] in shown for each in reported["dead_letters_found"])
    done = filled(*given, "--yes")
    assert "2 dead letters may be" in done.stderr
    assert all(each in done.stderr for each in kept)
    assert kept <= {each["id"] for each in filled.json("dead-letters", "list", "--json")}
    assert not any(
        each["position"].endswith("#912") for each in filled.json("dead-letters", "list", "--json")
    )


def test_without_yes_it_asks(filled: CommandLine) -> None:
    before = export(filled)
    assert filled("erase", *WHOM, given=b"n\n").exit_code == 1
    assert export(filled) == before
    assert filled("erase", *WHOM, given=b"y\n").exit_code == 0
    assert len(export(filled)) == len(before) - 1, "one person of two fragments"


def test_an_interrupted_question_erases_nothing(filled: CommandLine) -> None:
    before = export(filled)
    command = [
        sys.executable,
        "-m",
        "idgraph.app.cli",
        "-c",
        str(filled.folder / "idgraph.toml"),
        "erase",
        *WHOM,
    ]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as asking:
        assert asking.stderr
        reported = b""
        while not reported.endswith(b"[y/N]:"):
            byte = asking.stderr.read(1)
            assert byte, reported
            reported += byte
        # One that comes before the answer is waited for is noticed with the next.
        while asking.poll() is None:
            asking.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                asking.wait(10)
        assert b"interrupted" in asking.stderr.read()
    assert asking.returncode == 130
    assert export(filled) == before


def test_what_is_not_there(filled: CommandLine) -> None:
    for how in ("--yes", "--dry-run"):
        result = filled("erase", "email:nobody@example.com", how)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr.splitlines()[-1].startswith("error: ")
    assert filled("erase", "no colon", "--yes").exit_code == 2
    assert filled("erase", "--yes").exit_code == 2
    cancelled = filled("erase", "--cancel", "email:nobody@example.com")
    assert (cancelled.exit_code, cancelled.stdout) == (3, "cancelled 0\n")


@pytest.mark.parametrize("name", ["", "w9", "nonsense"])
@pytest.mark.parametrize("more", [["--yes"], ["--cancel"], ["--dry-run"]], ids=["erase", "lift", "dry run"])
def test_an_id_that_is_no_identifier_is_reported(name: str, more: list[str], filled: CommandLine) -> None:
    result = filled("erase", "--fragment", name, *more)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "type:value" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--again", "--dry-run"],
        ["--again", *WHOM],
        ["--again", "--fragment", "email:x"],
        ["--again", "--cancel"],
        ["--again", "--receipt", "receipt.json"],
        ["--cancel", "--dry-run", *WHOM],
        ["--cancel", "--receipt", "receipt.json", *WHOM],
    ],
    ids=" ".join,
)
def test_what_would_be_passed_over_is_refused(words: list[str], filled: CommandLine) -> None:
    """Found by a new user: a dry run lifted, and `--again` with a name left the person there."""
    filled("erase", "email:left@example.com", "--fragment", "email:left@example.com", "--yes")
    with wiring.opened(filled.settings()) as resources:
        before = resources.store.all_tombstones()
        assert filled("erase", *words, "--yes").exit_code == 2
        assert resources.store.all_tombstones() == before


@pytest.mark.parametrize("place", ["there/receipt.json", "is-there.json"])
def test_nothing_is_erased_where_no_receipt_can_be_written(
    place: str, filled: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "is-there.json").touch()
    before = export(filled)
    result = filled("erase", *WHOM, "--yes", "--receipt", tmp_path / place)
    assert (result.exit_code, result.stdout) == (2, "")
    assert export(filled) == before


def test_a_receipt_that_could_not_be_written_is_not_lost(
    filled: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt, place, erase = tmp_path / "folder" / "receipt.json", tmp_path / "folder", Erasure.erase
    place.mkdir()

    def loses_its_place(*given: Any) -> Any:
        place.rmdir()
        return erase(*given)

    monkeypatch.setattr(Erasure, "erase", loses_its_place)
    result = filled("erase", *WHOM, "--yes", "--receipt", receipt)
    assert result.exit_code == 1
    assert "everything is erased, and the receipt is on standard output" in result.stderr
    reported = json.loads(result.stdout)
    assert reported["hash"] == receipt_hash(reported)
    assert reported["counts"]["fragments"] == 2


def test_who_was_erased_before_is_reported_so(filled: CommandLine) -> None:
    filled("erase", *WHOM, "--yes")
    again = filled("erase", *WHOM, "--yes")
    assert again.exit_code == 3
    assert "it was erased before, and its events are refused" in again.stderr


def test_a_name_that_was_given_is_kept_away_where_nothing_is_stored_under_it(filled: CommandLine) -> None:
    """Found by use: what was on its way made a fragment of the person that no other name led to."""
    device = "anonymous_id:anonymous-canary-user-4711"
    filled("erase", *WHOM, device, "--yes")
    after = export(filled)
    process(filled.settings(), [segment(1, userId=None), segment(2)])
    assert export(filled) == after


def test_a_key_of_which_nothing_was_written_goes_with_its_name(filled: CommandLine) -> None:
    with wiring.opened(filled.settings()) as resources:
        hashed = str(resources.blind_index.identifier(Identifier("email", "left@example.com")))
        names = ["email:left@example.com", hashed]
        resources.data_keys.fetch(names, create=True)
    assert filled("erase", names[0], "--yes").exit_code == 0
    with wiring.opened(filled.settings()) as resources:
        assert resources.data_keys.existing(names) == set()
    assert filled("erase", names[0], "--yes").exit_code == 3


def test_a_dry_run_finds_what_stands_under_the_other_name(filled: CommandLine) -> None:
    reported = filled.json("erase", "--fragment", f"email:{MAIL}", "--dry-run", "--json")
    assert reported[0]["fragments"] == 1


def test_a_lift_of_nobody_writes_nothing(filled: CommandLine) -> None:
    """Later flows took it for an erasure that was lost, and said so."""
    result = filled("erase", "--cancel", "--fragment", "user_id:typo")
    assert (result.exit_code, result.stdout) == (3, "cancelled 0\n")
    file = filled.settings().directory / "tombstones.jsonl"
    assert not file.exists() or file.read_bytes() == b""


def test_a_dry_run_has_no_receipt(filled: CommandLine) -> None:
    assert filled("erase", *WHOM, "--dry-run", "--receipt", filled.folder / "r.json").exit_code == 2


def test_the_same_events_again_bring_nothing_back_until_lifted(filled: CommandLine) -> None:
    ids = ids_of(filled)
    filled("erase", *WHOM, "--yes")
    after = export(filled)
    process(filled.settings(), [*person(), *person(5)])
    assert export(filled) == after
    fragments = [word for each in ids for word in ("--fragment", each)]
    assert filled("erase", "--cancel", *fragments).output == "cancelled 2\n"
    process(filled.settings(), [*person(), *person(5)])
    assert ids_of(filled) == ids
    assert filled.json("search", "--json", f"activity.platform={ITEM}")


@pytest.mark.parametrize("dies", ["file", "store", ""])
def test_a_lift_that_was_cut_short_is_not_taken_back_later(
    dies: str, filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ids_of(filled)
    filled("erase", *WHOM, "--yes")
    settings = filled.settings()

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, wiring.opened(settings) as resources, ExitStack() as stack:
        if dies:
            stack.enter_context(pytest.raises(KeyboardInterrupt))
            where, step = {"file": (TombstoneFile, "append"), "store": (SqliteProfileStore, "cancel")}[dies]
            patched.setattr(where, step, killed)
        wiring.erasure(settings, resources).cancel(ids)
    with wiring.opened(settings) as resources:
        for starts in (False, True):
            if starts:
                wiring.erasure(settings, resources).repair()
            forbids = {each.until > NO_EPOCH for each in resources.store.tombstones(ids).values()}
            assert forbids == {bool(dies)}


def away(*_: Any) -> Any:
    raise ProfileIndexError("the index is away")


def test_what_was_cut_short_is_finished_before_it_is_lifted(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what its dead letters hold could be replayed: the erasure had not reached them yet."""
    fragments = [word for each in ids_of(filled) for word in ("--fragment", each)]

    with monkeypatch.context() as patched:
        patched.setattr(TantivyProfileIndex, "erase", away)
        assert filled("erase", *WHOM, "--yes").exit_code == 1
        kept = filled("erase", "--cancel", *fragments)
        assert (kept.exit_code, kept.stdout) == (1, "")
        assert "the index is away" in kept.stderr
    assert filled("erase", "--cancel", *fragments).output == "cancelled 2\n"
    with wiring.opened(filled.settings()) as resources:
        assert resources.store.unfinished() == []
        (theirs,) = resources.dead_letters.scan()
    assert theirs.position.endswith("#903")


@pytest.mark.parametrize("first", [0, 1])
def test_a_person_of_whom_a_part_was_erased_is_erased_by_the_same_command(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """A store that erases fragment by fragment was killed in between: nothing leads to the rest of them any more."""
    erase = SqliteProfileStore.erase

    def cut(store: SqliteProfileStore, ids: list[str], until: int) -> list[FragmentSummary]:
        present = [each.fragment_id for each in store.summaries(ids) if each.version]
        erase(store, [present[first]], until)
        raise StoreError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteProfileStore, "erase", cut)
        assert filled("erase", f"user_id:{USER}", "--yes").exit_code == 1
    filled("erase", f"user_id:{USER}", "--yes")
    assert seen(filled.settings().directory) == []
    with wiring.opened(filled.settings()) as resources:
        assert resources.store.unfinished() == []


def test_an_erasure_that_the_store_was_given_twice_is_whole(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the answer to the first was lost: some dead letters carry nothing but the person's other identifiers."""
    erase = SqliteProfileStore.erase

    def twice(store: SqliteProfileStore, ids: list[str], until: int) -> list[FragmentSummary]:
        erase(store, ids, until)
        return erase(store, ids, until)

    monkeypatch.setattr(SqliteProfileStore, "erase", twice)
    (found,) = filled.json("lookup", "--json", f"user_id:{USER}")
    (reported,) = filled.json("erase", "--fragment", found["id"], "--yes", "--json")
    assert (reported["counts"]["dead_letters"], reported["counts"]["fragments"]) == (3, 1)
    (left,) = filled.json("dead-letters", "list", "--json")
    assert left["position"].endswith("#903")


def test_what_was_cut_short_is_finished_by_a_lift_of_its_other_name(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead letter of the one may be replayed into the other."""
    with wiring.opened(filled.settings()) as resources:
        hashed = str(resources.blind_index.identifier(Identifier.parse("email:left@example.com")))
        erasure = wiring.erasure(filled.settings(), resources)
        with monkeypatch.context() as patched:
            patched.setattr(TantivyProfileIndex, "erase", away)
            with pytest.raises(ProfileIndexError):
                erasure.erase(["email:left@example.com"], 1)
        assert [each.fragment_id for each in resources.store.unfinished()] == ["email:left@example.com"]
        erasure.cancel([hashed])
        assert resources.store.unfinished() == []


@pytest.mark.parametrize("what", ["erase", "lift", "again", "repair"])
def test_two_that_erase_or_lift_come_one_after_the_other(
    what: str, filled: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the file of tombstones might end with the erasure and the store with its lift."""
    ids = ids_of(filled)
    with wiring.opened(filled.settings()) as resources:
        first, second = (wiring.erasure(filled.settings(), resources) for _ in range(2))
        first.erase(ids, 1)
        before = resources.store.all_tombstones()
        work = {
            "erase": lambda: second.erase(["email:left@example.com"], 1),
            "lift": lambda: second.cancel(ids),
            "again": second.again,
            "repair": second.repair,
        }[what]
        keeper = TombstoneFile(filled.settings().directory / "tombstones.jsonl")
        thread = Thread(target=work)
        with keeper.alone():
            thread.start()
            while thread.is_alive() and "waiting for its end" not in caplog.text:
                thread.join(0.01)
            assert thread.is_alive()
            assert resources.store.all_tombstones() == before
            assert keeper.read() == before
            # What the first had not done yet: its lift.
            keeper.append({first.names(each): Tombstone(NO_EPOCH, 0) for each in ids})
            resources.store.cancel(ids)
        thread.join()
        assert {name: each.until for name, each in resources.store.all_tombstones().items()} == {
            name: each.until for name, each in keeper.read().items()
        }
        assert {each.until for each in resources.store.tombstones(ids).values()} == {NO_EPOCH}


def test_what_is_being_erased_elsewhere_is_not_lifted(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, whose tombstones stand in a file of its own."""
    ids = ids_of(filled)
    filled("erase", *WHOM, "--yes")
    append = TombstoneFile.append
    with wiring.opened(filled.settings()) as resources:

        def meanwhile(keeper: TombstoneFile, tombstones: Any) -> None:
            append(keeper, tombstones)
            resources.store.erase(ids[:1], 1)

        with monkeypatch.context() as patched:
            patched.setattr(TombstoneFile, "append", meanwhile)
            reported = filled("erase", "--cancel", *(word for each in ids for word in ("--fragment", each)))
        assert (reported.exit_code, reported.stdout) == (1, "")
        assert "1 of them are being erased just now, elsewhere" in reported.stderr
        forbids = {name: each.until > NO_EPOCH for name, each in resources.store.tombstones(ids).items()}
        assert forbids == {ids[0]: True, ids[1]: False}


def copied(source: Path, target: Path) -> None:
    """A file, or a folder in the place of what is there."""
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


@pytest.mark.parametrize("step", ["repair", "again"])
def test_a_restored_backup_shows_nothing_protected_and_is_erased_again(
    filled: CommandLine, tmp_path: Path, step: str
) -> None:
    settings = filled.settings()
    backup = tmp_path / "backup"
    backup.mkdir()
    for name in DATABASES:
        copied(settings.directory / name, backup / name)
    ids = ids_of(filled)
    filled("erase", *WHOM, "--yes")
    others = export(filled)
    for name in DATABASES:
        for beside in ("-wal", "-shm"):
            (settings.directory / f"{name}{beside}").unlink(missing_ok=True)
        copied(backup / name, settings.directory / name)

    restored = [line for line in export(filled) if line["id"] in ids]
    assert len(restored) == 1
    text = json.dumps(restored)
    assert "unreadable" in text
    assert MAIL not in text
    assert STREET not in text

    if step == "again":
        assert filled("erase", "--again").exit_code == 0
    else:
        # What a flow does before it starts.
        with wiring.opened(settings) as resources:
            wiring.erasure(settings, resources).repair()
    assert export(filled) == others
    process(settings, person())
    assert export(filled) == others
    shutil.rmtree(backup)
    assert seen(tmp_path) == []


def test_what_a_backup_brought_back_beside_the_profiles_is_erased_again(
    filled: CommandLine, tmp_path: Path
) -> None:
    settings = filled.settings()
    backup = tmp_path / "backup"
    backup.mkdir()
    restored = ("index", "data-keys.db")
    for name in restored:
        copied(settings.directory / name, backup / name)
    ids = ids_of(filled)
    filled("erase", *WHOM, "--yes")
    for name in restored:
        for beside in ("-wal", "-shm"):
            (settings.directory / f"{name}{beside}").unlink(missing_ok=True)
        copied(backup / name, settings.directory / name)

    assert filled("erase", "--again").exit_code == 0
    with wiring.opened(settings) as resources:
        assert resources.data_keys.fetch(ids, create=False) == {}
        assert resources.index.versions(ids) == {}
    shutil.rmtree(backup)
    assert seen(tmp_path) == []


CUT = ["erase", "_keep", "_finish", "data_keys", "index", "letters", "compact", "finish"]


class CutError(Exception):
    """Stands for a crash."""


def cut_at(point: str, erasure: Erasure, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise CutError

    places: dict[str, tuple[object, str]] = {
        "erase": (SqliteProfileStore, "erase"),
        "_keep": (Erasure, "_keep"),
        "_finish": (Erasure, "_finish"),
        "data_keys": (type(erasure._data_keys), "erase"),
        "index": (TantivyProfileIndex, "erase"),
        "letters": (Erasure, "_dead_letters_of"),
        "compact": (TantivyProfileIndex, "compact"),
        "finish": (SqliteProfileStore, "finish"),
    }
    monkeypatch.setattr(*places[point], crash)


@pytest.mark.parametrize("first", CUT)
@pytest.mark.parametrize("second", [*long("data_keys", "letters"), "finish"])
def test_two_crashes_and_one_retry(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    settings = filled.settings()
    ids = ids_of(filled)
    with wiring.opened(settings) as resources:
        erasure = wiring.erasure(settings, resources)
        with ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            cut_at(first, erasure, patch)
            with pytest.raises(CutError):
                erasure.erase(ids, 2_000_000_000_000, WHOM)
        for name in (second,):
            with pytest.MonkeyPatch.context() as patch:
                cut_at(name, erasure, patch)
                # The command retried, or what a flow does by itself.
                with pytest.raises(CutError):
                    erasure.erase(ids, 2_000_000_000_000, WHOM)
    process(settings, person())
    if first in ("erase", "_keep", "data_keys") and second == "data_keys":
        assert filled("erase", *WHOM, "--yes").exit_code == 0
    else:
        assert filled("erase", "--again").exit_code == 0
    text = json.dumps(export(filled))
    assert not [each for each in ids if each in text]
    assert remains(settings.directory, ids) == []
    (left,) = filled.json("dead-letters", "list", "--json")
    assert left["position"].endswith("#903")
    with wiring.opened(settings) as resources:
        assert resources.store.unfinished() == []
        assert resources.index.search(Query(), 10_000).ids == sorted(each["id"] for each in export(filled))


def test_a_store_that_fails_is_reported(filled: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StoreError("profiles.db: the disk is full")

    monkeypatch.setattr(SqliteProfileStore, "erase", fails)
    result = filled("erase", *WHOM, "--yes")
    assert result.exit_code == 1
    assert "the disk is full" in result.stderr


def test_the_name_of_the_file_of_tombstones_outlives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first durable step: of a later one alone a restored backup would know nothing. Also by a second try, where
    the disk refused the first."""
    synced: list[bool] = []
    plain, refuses = os.fsync, True

    def noted(descriptor: int) -> None:
        if refuses:
            raise OSError(errno.EIO, "Input/output error")
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    file = TombstoneFile(tmp_path / "tombstones.jsonl")
    with pytest.raises(StoreError, match="Input/output error"):
        file.append({b"a": Tombstone(1, 1)})
    refuses = False
    file.append({b"a": Tombstone(1, 1)})
    assert synced == [True, False]
    file.append({b"b": Tombstone(1, 1)})
    assert synced == [True, False, False]


def test_erasures_replays_and_exports_are_jobs_and_name_nobody(filled: CommandLine) -> None:
    output = filled.folder / "out.jsonl"
    why = ("--who", "ada", "--why", "ticket 7")
    assert filled("export", "-o", output, *why).exit_code == 0
    assert filled("dead-letters", "replay", "--all", *why).exit_code in (0, 1)
    assert filled("erase", *WHOM, "--yes", *why).exit_code == 0
    assert filled("erase", "--again", "--who", "ada", "--reason", "ticket 7").exit_code == 0
    assert filled("erase", "--cancel", *WHOM, *why).exit_code == 0
    jobs = filled.json("jobs", "list", "--json")
    assert [(each["kind"], each["what"].get("action")) for each in jobs] == [
        ("erase", "cancel"),
        ("erase", "again"),
        ("erase", "erase"),
        ("replay", None),
        ("export", None),
    ]
    assert {(each["state"], each["who"], each["why"]) for each in jobs} == {("done", "ada", "ticket 7")}
    assert jobs[-1]["done"] == jobs[-1]["total"] == len(output.read_bytes().splitlines())
    assert jobs[2]["counts"]["fragments"] > 0
    for file in filled.settings().directory.glob("jobs.db*"):
        assert b"canary" not in file.read_bytes()


def test_an_erasure_drops_examples_that_may_name_the_person(filled: CommandLine) -> None:
    with closing(SqliteDataKeys(filled.settings().directory / "data-keys.db")) as store:
        ((name, key),) = store.wrapped_by(1, "", 1).items()
        store.replace({name: (key, key._replace(wrapped=bytes(len(key.wrapped))))})
    assert filled("keys", "rotate").exit_code == 1
    (job,) = filled.json("jobs", "list", "--json")
    (shown,) = filled.json("jobs", "show", job["id"], "--json")
    assert shown["notes"] == {"unusable": [name]}
    assert filled("erase", *WHOM, "--yes").exit_code == 0
    (shown,) = filled.json("jobs", "show", job["id"], "--json")
    assert shown["notes"] == {}


def test_a_backup_of_dead_letters_shows_nothing_of_who_was_erased(
    filled: CommandLine, tmp_path: Path
) -> None:
    directory = filled.settings().directory
    backup = tmp_path / "backup.db"
    copied(directory / "dead-letters.db", backup)
    before = {each["id"] for each in filled.json("dead-letters", "list", "--json")}
    filled("erase", *WHOM, "--yes")
    (left,) = filled.json("dead-letters", "list", "--json")
    for beside in ("", "-wal", "-shm"):
        (directory / f"dead-letters.db{beside}").unlink(missing_ok=True)
    copied(backup, directory / "dead-letters.db")

    assert {each["id"] for each in filled.json("dead-letters", "list", "--json")} == before
    assert len(before) == 4
    shown = {each: filled("dead-letters", "show", each, "--reveal").output for each in before}
    assert [each for each, text in shown.items() if "customer" in text] == [left["id"]]
    assert not any(canary in text for text in shown.values() for canary in CANARIES)


def test_the_ledger_of_triggers_has_the_others_alone(filled: CommandLine) -> None:
    settings = filled.settings()
    with wiring.opened(settings) as resources:
        hers = [resources.store.name(each).hex() for each in ids_of(filled)]
    with closing(open_documents(settings)) as documents:
        ledger = TriggerLedger(documents)
        lines = [
            LedgerLine(f"id{number}", "t", 1, each, 1, 1, 1, "held")
            for number, each in enumerate([*hers, "ff"])
        ]
        ledger.append(lines)
        for each in lines:
            ledger.keep_sent_to("t", each.profile, {"last": {"s": 1}, "sent": {each.id: 1}})
            ledger.wait(Message("crm", 1, each))
        filled.json("erase", *WHOM, "--yes", "--json")
        kept = TriggerLedger(documents)
        assert kept.lines("t", 10) == [lines[-1]] == [each.line for each in kept.waiting()]
        assert documents.names("triggers/people/t/*.json") == ["triggers/people/t/ff.json"]
