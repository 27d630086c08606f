"""`idgraph backup` and `idgraph restore`: all that is embedded comes back, and nothing that is not whole."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from idgraph.app import wiring
from idgraph.app.adapters.shared_state import household_log
from idgraph.app.commands import backup
from idgraph.app.metadata_server import serving_here
from idgraph.files import write_atomically
from idgraph.model.households import HouseholdEntry
from tests.app.conftest import CommandLine

pytestmark = pytest.mark.slow

ENTRY = HouseholdEntry("h1", "m1", "user_id:1", "k1", 1, "joined")


@pytest.fixture
def installation(filled: CommandLine) -> CommandLine:
    """With profiles, dead letters, metadata and its tokens, a flow's checkpoint, and an audit log."""
    directory = filled.settings().directory
    with serving_here(filled.settings()):
        pass
    flow = directory / "flows" / "shop"
    checkpoint(flow / "checkpoint", done=4, planned=5, found=6)
    (flow / "spark").mkdir()
    (flow / "spark" / "temporary").write_text("x")
    write_atomically(directory / "tombstones.jsonl", b"")
    (directory / "webhooks" / "crm").mkdir(parents=True)
    write_atomically(directory / "webhooks" / "crm" / "place.json", b'{"cursor": "7"}')
    assert filled("lookup", "user_id:3474", "--reveal").exit_code in (0, 3)
    return filled


def checkpoint(place: Path, done: int, planned: int, found: int) -> None:
    for name, last in (("commits", done), ("offsets", planned), ("sources/0", found)):
        (place / name).mkdir(parents=True, exist_ok=True)
        for number in range(last + 1):
            (place / name / str(number)).write_text("v1")
            (place / name / f".{number}.crc").write_text("sum")
    (place / "metadata").write_text('{"id":"q"}')


def elsewhere(installation: CommandLine, folder: Path) -> CommandLine:
    """The same configuration in another folder, where nothing is stored."""
    folder.mkdir()
    shutil.copy(installation.folder / "idgraph.toml", folder / "idgraph.toml")
    return CommandLine(folder)


def made(installation: CommandLine, *words: str) -> Path:
    folder = installation.folder / "copies" / "one"
    result = installation("backup", folder, *words)
    assert result.exit_code == 0, result.output
    return folder


def contents(idgraph: CommandLine) -> list[str]:
    """All that the commands show of it."""
    shown = []
    for words in (
        ("export", "--provenance"),
        ("dead-letters", "list", "--json"),
        ("tokens", "list", "--json"),
        ("keys", "list", "--json"),
    ):
        result = idgraph(*words)
        assert result.exit_code == 0, (words, result.output)
        shown.append(result.stdout)
    return shown


def test_all_that_is_embedded_comes_back(installation: CommandLine, tmp_path: Path) -> None:
    before = contents(installation)
    assert json.loads(before[0].splitlines()[0])["attributes"]
    jobs = installation("jobs", "list", "--json").stdout
    assert jobs
    folder = made(installation, "--with-keyring")
    # In the copies are files only, whole and private.
    assert {each.stat().st_mode & 0o077 for each in [folder, *folder.rglob("*")]} == {0}
    other = elsewhere(installation, tmp_path / "other")
    result = other("restore", folder)
    assert result.exit_code == 0, result.output
    assert "next: `idgraph up`: the flow also makes the search index again" in result.output
    assert other("jobs", "list", "--json").stdout == jobs
    assert contents(other) == before
    with wiring.opened_to_read(other.settings()) as resources:
        waiting = {each.fragment_id for each in resources.store.outbox(10_000)}
        assert waiting == set(resources.store.ids())
    directory = other.settings().directory
    assert json.loads((directory / "webhooks/crm/place.json").read_bytes()) == {"cursor": "7"}
    flow = directory / "flows" / "shop"
    assert (flow / "snapshot.json").exists()
    assert not (flow / "spark").exists()
    # It is of no service.
    (flow / "snapshot.json").unlink()
    verified = other("audit", "verify")
    assert verified.exit_code == 0, verified.output
    with serving_here(other.settings()) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDGRAPH_METADATA__URL", url)
        # By the token and the key of before.
        assert other("specs", "list").exit_code == 0


def test_households_come_back(installation: CommandLine, tmp_path: Path) -> None:
    with closing(household_log(installation.settings())) as log:
        log.append("h1", lambda _: [ENTRY])
    other = elsewhere(installation, tmp_path / "other")
    assert other("restore", made(installation, "--with-keyring")).exit_code == 0
    with closing(household_log(other.settings())) as log:
        assert log.read("h1") == [ENTRY]


def test_a_checkpoint_is_copied_as_a_crash_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, target = tmp_path / "checkpoint", tmp_path / "copy"
    checkpoint(place, done=4, planned=5, found=5)
    copy, done = backup._copy_file, 4

    def beside_a_flow(file: Path, to: Path) -> None:
        nonlocal done
        copy(file, to)
        # A micro-batch ends after each file, and the next is planned.
        done += 1
        checkpoint(place, done, done + 1, done + 1)

    monkeypatch.setattr(backup, "_copy_file", beside_a_flow)
    backup._copy_checkpoint(place, target)

    def last(name: str) -> int:
        return max(int(each.name) for each in (target / name).iterdir())

    assert last("commits") == 4
    assert last("offsets") == 5
    assert last("sources/0") > 5
    assert not [each for each in target.rglob("*") if each.name.startswith(".")]


def test_a_file_of_a_checkpoint_that_goes_meanwhile_is_no_failure(
    installation: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = backup._copy_file
    gone: list[Path] = []

    def without_the_oldest(file: Path, to: Path) -> None:
        if file.parent.name == "offsets" and not gone:
            gone.append(file)
            file.unlink()
        copy(file, to)

    monkeypatch.setattr(backup, "_copy_file", without_the_oldest)
    folder = made(installation)
    assert sorted(each.name for each in (folder / "flows/shop/checkpoint/offsets").iterdir()) == list("12345")


def test_what_follows_the_profiles_is_copied_after_them(
    installation: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []
    copy_file, copy_database = backup._copy_file, backup._copy_database

    def note_file(file: Path, to: Path) -> None:
        copied.append(file.parent.name if file.parent.name == "commits" else file.name)
        copy_file(file, to)

    def note_database(file: Path, folder: Path) -> None:
        copied.append(file.name)
        copy_database(file, folder)

    monkeypatch.setattr(backup, "_copy_file", note_file)
    monkeypatch.setattr(backup, "_copy_database", note_database)
    made(installation)
    order = [
        copied.index(name) for name in ("place.json", "jobs.db", "commits", "dead-letters.db", "profiles.db")
    ]
    assert order == sorted(order)
    for first, second in (
        ("profiles.db", "data-keys.db"),
        ("dead-letters.db", "dead-letters.keys.db"),
        ("profiles.db", "tombstones.jsonl"),
    ):
        assert copied.index(first) < copied.index(second)


def test_a_backup_has_what_is_only_in_the_log_of_a_database(
    installation: CommandLine, tmp_path: Path
) -> None:
    file = installation.settings().directory / "profiles.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE later (a)")
        connection.execute("INSERT INTO later VALUES (7)")
        connection.commit()
        folder = made(installation)
    with closing(sqlite3.connect(folder / "profiles.db")) as connection:
        assert connection.execute("SELECT a FROM later").fetchall() == [(7,)]
    assert not list(folder.glob("*-wal"))


def test_only_into_an_empty_folder_and_out_of_a_finished_backup(
    installation: CommandLine, tmp_path: Path
) -> None:
    folder = made(installation, "--with-keyring")
    again = installation("backup", folder)
    assert (again.exit_code, "is not empty" in again.output) == (2, True)
    beside = installation("restore", folder)
    assert (beside.exit_code, "is not empty" in beside.output) == (2, True)
    (folder / "backup.json").unlink()
    other = elsewhere(installation, tmp_path / "other")
    unfinished = other("restore", folder)
    assert unfinished.exit_code == 2
    assert "is no backup, or was not finished" in unfinished.output
    assert not other.settings().directory.exists()


def test_a_damaged_file_leaves_nothing(installation: CommandLine, tmp_path: Path) -> None:
    folder = made(installation, "--with-keyring")
    with (folder / "data-keys.db").open("r+b") as stream:
        stream.seek(100)
        stream.write(b"\xff")
    other = elsewhere(installation, tmp_path / "other")
    result = other("restore", folder)
    assert result.exit_code == 1
    assert f"{folder / 'data-keys.db'} is damaged" in result.output
    (folder / "data-keys.db").unlink()
    assert other("restore", folder).exit_code == 1
    assert [each.name for each in other.folder.iterdir()] == ["idgraph.toml"]


def test_the_keyring_is_named_and_must_be_that_of_the_backup(
    installation: CommandLine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = made(installation)
    assert not (folder / "keyring.json").exists()
    other = elsewhere(installation, tmp_path / "other")
    assert "the backup has no keyring" in other("restore", folder).output
    foreign = elsewhere(installation, tmp_path / "foreign")
    assert foreign("keys", "init").exit_code == 0
    refused = other("restore", folder, "--keyring", foreign.settings().keyring_file())
    assert refused.exit_code == 2
    assert "is not the keyring of this backup" in refused.output
    assert not other.settings().directory.exists()
    given = other("restore", folder, "--keyring", installation.settings().keyring_file())
    assert given.exit_code == 0, given.output
    assert other("keys", "list").stdout == installation("keys", "list").stdout


def test_who_was_erased_after_the_backup_is_erased_again(installation: CommandLine, tmp_path: Path) -> None:
    profiles = [json.loads(line) for line in installation("export").stdout.splitlines()]
    person = next(each["id"] for each in profiles if each["id"].startswith("user_id:"))
    folder = made(installation, "--with-keyring")
    assert installation("erase", person, "--yes").exit_code == 0
    newest = installation.settings().directory / "tombstones.jsonl"
    other = elsewhere(installation, tmp_path / "other")
    assert other("restore", folder, "--tombstones", newest).exit_code == 0
    assert other("lookup", person).exit_code == 0
    assert other("erase", "--again").exit_code == 0
    assert other("lookup", person).exit_code == 3
    assert other("export").stdout == installation("export").stdout


def test_the_newest_tombstones_are_joined(installation: CommandLine, tmp_path: Path) -> None:
    folder = made(installation, "--with-keyring")
    newest = tmp_path / "newest.jsonl"
    line = b'{"name":"00","until":9,"version":1}\n'
    newest.write_bytes(line)
    other = elsewhere(installation, tmp_path / "other")
    assert other("restore", folder, "--tombstones", newest).exit_code == 0
    assert (other.settings().directory / "tombstones.jsonl").read_bytes() == line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 9}, "written by a newer idgraph"),
        ({"store": "dynamodb"}, "[store] kind dynamodb"),
        ({"files": {"../outside": {"sha256": "", "size": 0}}}, "outside of a backup"),
        ({"files": 7}, "cannot be read"),
    ],
)
def test_what_is_no_backup_of_this_installation_is_refused(
    installation: CommandLine, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    folder = made(installation, "--with-keyring")
    file = folder / "backup.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | change))
    other = elsewhere(installation, tmp_path / "other")
    result = other("restore", folder)
    assert result.exit_code == 2
    assert said in result.output
    assert not other.settings().directory.exists()


def test_lost_profiles_are_not_backed_up_as_if_they_were_all(installation: CommandLine) -> None:
    for each in installation.settings().directory.glob("profiles.db*"):
        each.unlink()
    result = installation("backup", installation.folder / "copy")
    assert result.exit_code == 1
    assert "profiles.db is missing" in result.output
    assert not (installation.folder / "copy" / "backup.json").exists()


def test_servers_are_named_and_the_rest_is_copied(
    installation: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = installation.folder / "idgraph.toml"
    file.write_text(
        file.read_text().replace("[metadata]\n", '[metadata]\ndatabase = "postgresql+psycopg://db/x"\n', 1)
        + '[store]\nkind = "dynamodb"\nregion = "eu-central-1"\n'
    )
    settings = installation.settings()
    for each in settings.directory.glob("*.db*"):
        each.unlink()
    folder = tmp_path / "copy"
    backup._copy_installation(settings, folder, with_keyring=False)
    assert (folder / "flows/shop/checkpoint/commits/4").exists()
    assert not list(folder.glob("*.db"))
    backup._name_servers(settings, backup._Manifest(1, "", 0, 1_700_000_000_000, "dynamodb", "", {}))
    said = capsys.readouterr().err
    assert "point-in-time recovery to 2023-11-14T22:13:20+00:00 or later" in said
    assert "pg_dump" in said


def test_a_backup_stands_outside_of_what_it_is_of(installation: CommandLine) -> None:
    folder = installation.settings().directory / "copies"
    result = installation("backup", folder)
    assert result.exit_code == 2
    assert "name a folder elsewhere" in result.stderr
    assert not folder.exists()
