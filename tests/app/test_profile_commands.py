"""`idgraph lookup`, `search` and `export` on a store that the stages filled."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from idgraph.app import metadata_access, profile_server, wiring
from idgraph.files import write_atomically
from idgraph.jobs.export_file import write_export
from idgraph.model import canonical
from idgraph.model.identifiers import Identifier
from tests.app.conftest import CommandLine
from tests.app.processes import ROOT
from tests.retail import attribute, attributes, lines, snapshot
from transforms.privacy.blind_index import BlindIndex

SEGMENT_USER = "4493"
EMAIL = "charles.wang@example.com"
MASK = {"$protected": True}


def shown_of(profile: Any) -> Any:
    return profile["attributes"]


def test_lookup_shows_a_profile_with_where_its_values_came_from(filled: CommandLine) -> None:
    result = filled("lookup", f"user_id:{SEGMENT_USER}")
    assert result.exit_code == 0
    assert "identifiers" in result.stdout
    assert f"user_id:{SEGMENT_USER}" in result.stdout
    assert "spec shop-segment@1" in result.stdout
    assert "segment event" in result.stdout
    assert "••••••" in result.stdout
    assert "Wang" not in result.stdout


def test_lookup_by_a_protected_identifier(filled: CommandLine) -> None:
    (found,) = filled.json("lookup", f"email:{EMAIL}", "--json")
    assert found["id"] == f"user_id:{SEGMENT_USER}"
    assert shown_of(found)["identity"]["email"] == MASK
    assert found["provenance"]["demographics.age"]["spec"] == "shop-segment"


def test_lookup_reveals_on_request(filled: CommandLine) -> None:
    (found,) = filled.json("lookup", f"user_id:{SEGMENT_USER}", "--json", "--reveal")
    assert shown_of(found)["identity"]["email"] == EMAIL
    assert shown_of(found)["identity"]["name"] == {"full": "Charles Wang"}
    shown = filled("lookup", f"user_id:{SEGMENT_USER}", "--reveal").stdout
    assert "Charles Wang" in shown
    assert "protected" in shown


def test_lookup_of_nobody(filled: CommandLine) -> None:
    result = filled("lookup", "user_id:none")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "error: no profile has this identifier\n"


def test_lookup_of_a_type_that_there_is_not(filled: CommandLine) -> None:
    result = filled("lookup", "userid:4493")
    assert result.exit_code == 3
    assert "no active spec makes the type userid: did you mean user_id?" in result.stderr


def test_lookup_of_no_identifier(filled: CommandLine) -> None:
    result = filled("lookup", "4493")
    assert result.exit_code == 2
    assert "an identifier is written type:value" in result.stderr


def test_without_a_keyring_the_remedy_is_reported(idgraph: CommandLine) -> None:
    for words in (["lookup", "user_id:1"], ["search"], ["export"], ["dead-letters", "list"]):
        result = idgraph(*words)
        assert result.exit_code == 2
        assert "make one with `idgraph keys init`" in result.stderr


def test_a_keyring_that_others_may_read_is_refused(filled: CommandLine) -> None:
    filled.settings().keyring_file().chmod(0o644)
    result = filled("lookup", "user_id:1")
    assert result.exit_code == 1
    assert "chmod 600" in result.stderr


def searched(filled: CommandLine, *words: str) -> list[str]:
    return [profile["id"] for profile in filled.json("search", "--json", "--limit", "1000", *words)]


def test_search_by_every_kind_of_clause(filled: CommandLine) -> None:
    everybody = searched(filled)
    user = f"user_id:{SEGMENT_USER}"
    assert len(everybody) > 5
    assert user in searched(filled, "demographics.age=37")
    assert user in searched(filled, "demographics.age>=37", "demographics.age<=37")
    assert user not in searched(filled, "demographics.age>37")
    assert user in searched(filled, "shop.persona=floral*")
    assert user in searched(filled, "shop.username:user4493")
    assert user in searched(filled, "user4493")
    assert searched(filled, f"identity.userId={SEGMENT_USER}") == [user]
    assert searched(filled, f"identity.email={EMAIL.upper()}") == [user]
    assert searched(filled, "no-such-word") == []


def test_search_counts_and_pages(filled: CommandLine) -> None:
    total = len(searched(filled))
    assert filled("search", "--count").stdout == f"{total}\n"
    seen: list[str] = []
    more: list[str] = []
    while True:
        result = filled("search", "--json", "--limit", "4", *more)
        page = [json.loads(line)["id"] for line in result.stdout.splitlines()]
        summary = json.loads(result.stderr)
        assert (summary["total"], summary["profiles"], summary["warnings"]) == (total, len(page), [])
        seen += page
        if summary["cursor"] is None:
            break
        more = ["--cursor", summary["cursor"]]
    assert seen == searched(filled)
    shown = filled("search", "--limit", "4").stderr
    assert f"4 of {total} profiles; more with --cursor " in shown


def test_search_joins_clauses(filled: CommandLine) -> None:
    everybody = set(searched(filled))
    having = set(searched(filled, "identity.email=*"))
    aged = set(searched(filled, "demographics.age>=37"))
    assert set() < having < everybody
    assert set(searched(filled, "identity.email=* OR demographics.age>=37")) == having | aged
    assert set(searched(filled, "NOT", "identity.email=*")) == everybody - having
    assert set(searched(filled, "(demographics.age>=37", "OR", "NOT", "identity.email=*)")) == aged | (
        everybody - having
    )
    assert searched(filled, "user449*") == searched(filled, "user4493")
    refused = filled("search", "demographics.age=37 OR")
    assert (refused.exit_code, "one stands on each side" in refused.stderr) == (2, True)


def test_search_is_sorted_by_an_attribute(filled: CommandLine) -> None:
    def ages(*words: str) -> list[int]:
        found = filled.json("search", "--json", "--limit", "1000", "demographics.age=*", *words)
        return [each["attributes"]["demographics"]["age"] for each in found]

    assert ages("--sort", "demographics.age") == sorted(ages())
    assert ages("--sort", "-demographics.age") == sorted(ages(), reverse=True)
    first = filled("search", "--json", "--limit", "1", "--sort", "demographics.age")
    again = ("--cursor", json.loads(first.stderr)["cursor"])
    (second,) = filled.json("search", "--json", "--limit", "1", "--sort", "demographics.age", *again)
    assert second["id"] != json.loads(first.stdout)["id"]
    assert filled("search", *again).exit_code == 2
    protected = filled("search", "--sort", "identity.email")
    assert (protected.exit_code, "protected and cannot be sorted by" in protected.stderr) == (2, True)


def test_search_counts_profiles_by_value(filled: CommandLine) -> None:
    (answer,) = filled.json("search", "--json", "--facet", "activity.platform", "--facet", "nothing")
    platforms = answer["facets"]["activity.platform"]
    assert platforms
    for each in platforms:
        assert each["profiles"] == len(searched(filled, f"activity.platform={each['value']}"))
    assert answer["facets"]["nothing"] == []
    assert answer["warnings"] == ["no attribute is called nothing; `idgraph attributes search` finds them"]
    shown = filled("search", "--facet", "activity.platform", "--limit", "1").stdout
    assert str(platforms[0]["value"]) in shown
    assert {"true", "false"} & set(filled("search", "--facet", "orders.last.guest").stdout.split())
    protected = filled("search", "--facet", "identity.email")
    assert (protected.exit_code, "protected" in protected.stderr) == (2, True)


def test_a_clause_that_never_matches_is_reported_and_the_exit_code_stays(filled: CommandLine) -> None:
    result = filled("search", "demographics.age>=sixty OR demographics.age=37")
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert "'sixty' is no number" in result.stderr
    (summary,) = filled.json("search", "--json", "--count", "demographics.age>=sixty")
    assert (summary["total"], len(summary["warnings"])) == (0, 1)


@pytest.mark.parametrize(
    ("word", "reported"),
    [
        ("identity.name.full:wang", "identity.name.full is protected and cannot be searched"),
        ("identity.email=charles*", "can only be searched by its whole value"),
        ("identity.email>=a", "can only be searched by its whole value"),
        ("identity.userId=", "nothing stands after"),
        ("a>=true", "a range needs a number or text"),
    ],
)
def test_search_that_cannot_be_answered(word: str, reported: str, filled: CommandLine) -> None:
    result = filled("search", word)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reported in result.stderr


def test_a_star_in_quotes_is_reported_where_nothing_is_found(filled: CommandLine) -> None:
    assert filled("search", 'shop.username="user44"*', "--count").stdout != "0\n"
    result = filled("search", 'shop.username="user44*"', "--count")
    assert result.stdout == "0\n"
    assert 'a beginning is written shop.username="…"*' in result.stderr


@pytest.mark.parametrize("more", [[], ["--count"], ["--json"]])
def test_a_path_that_nobody_knows_is_reported_beside_the_answer(more: list[str], filled: CommandLine) -> None:
    result = filled("search", "identity.emial=a@example.com", "zzz=1", *more)
    assert result.exit_code == 0
    assert "no attribute is called identity.emial; did you mean identity.email?" in result.stderr
    assert "no attribute is called zzz; `idgraph attributes search` finds them" in result.stderr
    known = filled("search", "identity.email=nobody@example.com", *more)
    assert "no attribute" not in known.stderr
    # Found, though no metadata knows it yet: the catalogue learns of an attribute a moment later.
    assert "no attribute" not in filled("search", "demographics.age=37", *more).stderr


def test_search_with_a_foreign_cursor(filled: CommandLine) -> None:
    result = filled("search", "--cursor", "nonsense")
    assert result.exit_code == 2
    assert "cursor" in result.stderr


def test_export_twice_gives_the_same_bytes(filled: CommandLine) -> None:
    first, second = filled("export"), filled("export")
    assert first.exit_code == 0
    assert first.stdout_bytes == second.stdout_bytes
    profiles = [json.loads(line) for line in first.stdout.splitlines()]
    assert [profile["id"] for profile in profiles] == sorted(profile["id"] for profile in profiles)
    for line, profile in zip(first.stdout_bytes.splitlines(), profiles, strict=True):
        assert line == canonical.encode(profile)
        assert set(profile) == {"id", "identifiers", "attributes"}


@pytest.mark.parametrize(
    "words", [["export"], ["search", "--limit", "1000"], ["lookup", f"user_id:{SEGMENT_USER}"]]
)
def test_ids_that_policy_protects_since_are_reported_until_they_are_sealed(
    words: list[str], filled: CommandLine
) -> None:
    assert "policy protects" not in filled(*words).stderr
    known = snapshot(2, declared=[*attributes(), attribute("identity.userId", encryption="protected")])
    kept = {"etag": '"2"', "snapshot": known.model_dump(mode="json")}
    write_atomically(metadata_access.snapshot_file(filled.settings()), json.dumps(kept).encode())
    result = filled(*words)
    assert f"user_id:{SEGMENT_USER}" not in result.stdout
    assert "stored under an identifier that is protected now" in result.stderr
    assert filled("seal").exit_code == 0
    assert "policy protects" not in filled(*words).stderr


def test_export_into_a_file_of_its_owner(filled: CommandLine) -> None:
    file = filled.folder / "all.jsonl"
    result = filled("export", "-o", file)
    assert (result.exit_code, result.stdout) == (0, "")
    assert file.read_bytes() == filled("export").stdout_bytes
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in filled.folder.glob(".all*")] == []


def test_export_through_a_link_and_into_what_is_no_file(filled: CommandLine) -> None:
    """A device of the machine was replaced by a file of profiles."""
    whole = filled("export").stdout_bytes
    (filled.folder / "real.jsonl").write_bytes(b'{"attributes":{},"id":"old"}\n')
    (filled.folder / "link.jsonl").symlink_to("real.jsonl")
    assert filled("export", "-o", filled.folder / "link.jsonl").exit_code == 0
    assert (filled.folder / "link.jsonl").is_symlink()
    assert (filled.folder / "real.jsonl").read_bytes() == whole
    os.mkfifo(pipe := filled.folder / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert filled("export", "-o", pipe).exit_code == 0
    reader.join(60)
    assert (read, pipe.is_fifo()) == ([whole], True)
    assert filled("export", "-o", "/dev/full").exit_code == 2
    assert Path("/dev/full").is_char_device()
    for no_name in ("", "."):
        result = filled("export", "-o", no_name)
        assert (result.exit_code, "Is a directory" in result.stderr) == (2, True)


def test_an_export_replaces_nothing_but_an_export(filled: CommandLine) -> None:
    """It replaced the keyring, with which every protected value was gone, and said nothing."""
    settings = filled.settings()
    (filled.folder / "link").symlink_to(settings.keyring_file())
    for file in (settings.keyring_file(), settings.directory / "profiles.db", filled.folder / "link"):
        before = file.read_bytes()
        result = filled("export", "-o", file)
        assert (result.exit_code, "something else than an export" in result.stderr) == (2, True)
        assert file.read_bytes() == before
    (filled.folder / "empty").touch()
    for _ in range(2):
        assert filled("export", "--provenance", "-o", filled.folder / "empty").exit_code == 0


def test_an_export_into_ones_own_output_is_refused(tmp_path: Path) -> None:
    """`idgraph export -o /dev/stdout >> all.jsonl` left the export alone in the file."""
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"")
    for output in ("/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"):
        program = f"from pathlib import Path; from idgraph.jobs.export_file import require_export; require_export(Path({output!r}))"
        with file.open("ab") as stream:
            done = subprocess.run(
                [sys.executable, "-c", program], cwd=ROOT, stdout=stream, stderr=subprocess.PIPE, check=False
            )
        assert (done.returncode, b"leave out --output" in done.stderr) == (1, True)


def test_what_a_killed_export_left_goes_with_the_next_to_that_file(tmp_path: Path) -> None:
    """Profiles stood in hidden files for good."""
    file = tmp_path / "all[1].jsonl"

    def killed() -> Iterator[bytes]:
        yield b"one\n" * 100_000
        os._exit(9)

    assert fork_that(lambda: write_export(file, killed()))() == 9
    assert len(list(tmp_path.iterdir())) == 1
    write_export(file, [b"two\n"])
    assert file.read_bytes() == b"two\n"
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_two_exports_to_one_file_do_not_tear_each_other(tmp_path: Path) -> None:
    file = tmp_path / "both.jsonl"
    process = fork_that(lambda: write_export(file, [b"other\n"] * 3))

    def lines() -> Iterator[bytes]:
        yield b"one\n"
        assert process() == 1, "it is refused"
        yield b"two\n"

    write_export(file, lines())
    assert file.read_bytes() == b"one\ntwo\n"
    assert [each.name for each in tmp_path.iterdir()] == ["both.jsonl"]


def fork_that(work: Callable[[], object]) -> Callable[[], int]:
    """What does it in a process of its own when it is called, and gives that one's exit code."""

    def run() -> int:
        if (child := os.fork()) == 0:
            try:
                work()
            except BaseException:
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return run


def test_export_to_a_folder_that_is_not_there(filled: CommandLine) -> None:
    result = filled("export", "-o", filled.folder / "none" / "all.jsonl")
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr


def test_an_export_that_fails_leaves_nothing_behind(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> bytes:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr("idgraph.model.canonical.encode", failing)
        assert filled("export", "--reveal", "-o", filled.folder / "all.jsonl").exit_code == 1
    assert [each.name for each in filled.folder.glob("*all*")] == []


def test_export_shows_provenance_and_protected_values_only_on_request(filled: CommandLine) -> None:
    plain = filled("export").stdout
    assert "provenance" not in plain
    assert EMAIL not in plain
    assert "Charles Wang" not in plain
    profiles = filled.json("export", "--provenance", "--reveal")
    (wanted,) = [profile for profile in profiles if profile["id"] == f"user_id:{SEGMENT_USER}"]
    assert wanted["attributes"]["identity"]["email"] == EMAIL
    origin = wanted["provenance"]["identity.email"]
    assert set(origin) == {"source", "event", "ordinal", "priority", "spec", "spec_version"}


def test_an_erased_key_leaves_values_unreadable(filled: CommandLine) -> None:
    from tests.retail import durable_keys

    keys = durable_keys(filled.settings().directory)
    keys.delete([f"user_id:{SEGMENT_USER}"])
    keys.close()
    (found,) = filled.json("lookup", f"user_id:{SEGMENT_USER}", "--json", "--reveal")
    assert shown_of(found)["identity"]["email"] == {"$protected": "unreadable"}
    assert shown_of(found)["demographics"]["age"] == 37


def test_without_any_metadata_everything_is_masked(filled: CommandLine) -> None:
    metadata_access.snapshot_file(filled.settings()).unlink()
    (found,) = filled.json("lookup", f"user_id:{SEGMENT_USER}", "--json")
    assert shown_of(found)["demographics"]["age"] == MASK


def test_a_service_that_is_away_is_reported_and_the_last_snapshot_used(filled: CommandLine) -> None:
    filled.settings().token_file().write_text("a-token-that-nobody-knows")
    result = filled("lookup", f"user_id:{SEGMENT_USER}", "--json")
    assert result.exit_code == 0
    assert shown_of(json.loads(result.stdout))["demographics"]["age"] == 37


def test_a_reader_that_goes_away_is_no_traceback(filled: CommandLine) -> None:
    program = (
        f"{sys.executable} -m idgraph.app.cli -c {filled.folder}/idgraph.toml export --provenance | head -c 1"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(["sh", "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")


def test_nothing_stored_holds_protected_plaintext(filled: CommandLine) -> None:
    canaries = [
        EMAIL.encode(),
        b"Charles Wang",
        json.loads(lines("orders", 1)[0])["shipping"]["line1"].encode(),
    ]
    for file in filled.settings().directory.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert [canary for canary in canaries if canary in content] == [], file
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_the_index_knows_a_protected_identifier_by_its_hash_only(filled: CommandLine) -> None:
    with wiring.opened(filled.settings()) as resources:
        assert isinstance(resources.blind_index, BlindIndex)
        hashed = str(resources.blind_index.identifier(Identifier("email", EMAIL)))
    (found,) = filled.json("lookup", hashed, "--json")
    assert found["id"] == f"user_id:{SEGMENT_USER}"


def test_a_damaged_fragment_is_left_out_and_reported(filled: CommandLine) -> None:
    whole = filled("export").stdout.splitlines()
    database = filled.folder / ".idgraph" / "profiles.db"
    with sqlite3.connect(database) as connection:
        changed = connection.execute(
            "UPDATE fragments SET state = x'00' WHERE id = ?", (f"user_id:{SEGMENT_USER}",)
        )
        assert changed.rowcount == 1
    result = filled("export")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        line for line in whole if f'"id":"user_id:{SEGMENT_USER}"' not in line
    ]
    assert f"user_id:{SEGMENT_USER}" in result.stderr
    assert filled("lookup", f"user_id:{SEGMENT_USER}").exit_code == 1


def test_search_shows_chosen_attributes_in_a_line_each(filled: CommandLine) -> None:
    words = ("search", "shop.username:user4493", "--fields", "shop.persona,demographics.agee")
    result = filled(*words)
    assert "demographics.age" in result.stderr
    assert "user4493" not in result.stdout
    assert len(result.stdout.splitlines()) <= 3
    (profile,) = filled.json(*words, "--json")
    assert list(profile["attributes"]) == ["shop"]
    assert list(profile["attributes"]["shop"]) == ["persona"]
    assert profile["provenance"].keys() == {"shop.persona"}


def test_a_reveal_is_in_the_audit_log(filled: CommandLine) -> None:
    filled.json("lookup", f"user_id:{SEGMENT_USER}", "--json")
    filled.json("lookup", f"user_id:{SEGMENT_USER}", "--json", "--reveal", "--purpose", "ticket 7")
    filled.json("search", f"identity.userId={SEGMENT_USER}", "--json", "--reveal")
    *entries, first = wiring.audit_log(filled.settings()).newest(10)[0]
    assert first["action"] == "keys init"
    assert [(each["action"], each["caller"], each["purpose"]) for each in entries] == [
        ("reveal", wiring.operator_name(), "on the command line"),
        ("reveal", wiring.operator_name(), "ticket 7"),
    ]
    assert "identity.email" in entries[0]["attributes"]
    assert SEGMENT_USER not in json.dumps(entries)


def test_a_service_that_runs_answers_as_the_command_itself(
    served: CommandLine,
    filled_once: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(filled_once, served.folder, dirs_exist_ok=True)
    commands = [
        ("lookup", f"user_id:{SEGMENT_USER}"),
        ("lookup", f"user_id:{SEGMENT_USER}", "--json"),
        ("lookup", "user_id:nobody"),
        ("search", "--json", "--limit", "3", "--sort", "demographics.age"),
        ("search", "--count", "activity.platform=ios"),
        ("search", "--facet", "activity.platform"),
        ("search", "nothing=1", "--fields", "activity.platform"),
        ("search", "identity.userId="),
    ]

    def answers() -> list[tuple[int, str]]:
        done = [served(*words) for words in commands]
        return [(each.exit_code, each.stdout) for each in done]

    here = answers()
    with profile_server.serving_here(served.settings()) as url:
        monkeypatch.setenv("IDGRAPH_PROFILES__URL", url)
        assert answers() == here
        refused = served("lookup", f"user_id:{SEGMENT_USER}", "--reveal")
        assert (refused.exit_code, "may not reveal" in refused.stderr) == (1, True)
    assert served(*commands[0]).stdout == here[0][1]
    assert "the command reads the stores itself" in caplog.text
    assert here[0][1].count("\n") > 5
    assert [code for code, _ in here] == [0, 0, 3, 0, 0, 0, 0, 2]


def test_a_reveal_needs_a_purpose(filled: CommandLine) -> None:
    for words in (["lookup", f"user_id:{SEGMENT_USER}"], ["search", f"identity.userId={SEGMENT_USER}"]):
        refused = filled(*words, "--reveal", "--purpose", "")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "purpose" in refused.stderr


def test_a_service_that_is_away_is_no_empty_store(
    idgraph: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_PROFILES__URL", "http://127.0.0.1:9")
    monkeypatch.setenv("IDGRAPH_METADATA__TOKEN", "idg_a")
    for words in (["lookup", "user_id:1"], ["search", "--count"]):
        result = idgraph(*words)
        assert (result.exit_code, result.stdout) == (5, "")
        assert "http://127.0.0.1:9 does not answer" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--facet", "activity.platform", "--count"),
        ("--facet", "activity.platform", "--sort", "x"),
        ("--count", "--limit", "3"),
        ("--count", "--cursor", "x"),
    ],
)
def test_options_of_search_that_say_nothing_together_are_refused(
    filled: CommandLine, words: tuple[str, ...]
) -> None:
    refused = filled("search", *words)
    assert refused.exit_code == 2
    assert f"{words[0]} " in refused.stderr
