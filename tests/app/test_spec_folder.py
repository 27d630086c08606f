"""`idgraph specs pull`, `diff` and `push` against a real service: nobody's edit is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import CommandLine
from tests.retail import EXAMPLE

pytestmark = pytest.mark.slow


SPECS = EXAMPLE / "specs"
NAME = "shop-orders"


@pytest.fixture
def folder(served: CommandLine) -> Path:
    """Pulled from a service with all specs of the shop."""
    assert served("specs", "apply", *sorted(SPECS.glob("*.json"))).exit_code == 0
    found = served.folder / "specs"
    assert served("specs", "pull", found).exit_code == 0
    return found


def edit(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def states(served: CommandLine, folder: Path, act: str = "diff") -> dict[str, str]:
    lines = served("specs", act, folder, "--json").stdout.splitlines()
    return {each["name"]: each["state"] for each in map(json.loads, lines)}


def elsewhere(served: CommandLine, **fields: Any) -> None:
    """An edit by somebody else, as on the pages."""
    file = served.folder / "other.json"
    file.write_text((SPECS / "orders.json").read_text())
    edit(file, **fields)
    assert served("specs", "apply", file).exit_code == 0


def latest(served: CommandLine) -> tuple[int, int | None, str]:
    (found,) = [each for each in served.json("specs", "list", "--json") if each["name"] == NAME]
    return found["latest_version"], found["active_version"], found["document"]["description"]


def test_what_was_pulled_is_the_same_and_passes_the_checks(served: CommandLine, folder: Path) -> None:
    files = sorted(each.name for each in folder.iterdir())
    assert files == ["shop-amplitude.json", "shop-orders.json", "shop-segment.json", "versions.json"]
    assert served("specs", "diff", folder).exit_code == 0
    assert (
        served("check", *(each for each in folder.iterdir() if each.name != "versions.json")).exit_code == 0
    )
    before = {each: each.read_bytes() for each in folder.iterdir()}
    assert served("specs", "pull", folder).exit_code == 0
    assert served("specs", "push", folder).exit_code == 0
    assert {each: each.read_bytes() for each in folder.iterdir()} == before
    assert latest(served)[:2] == (1, 1)


def test_an_edit_is_shown_and_pushed(served: CommandLine, folder: Path) -> None:
    edit(folder / f"{NAME}.json", description="edited in git")
    shown = served("specs", "diff", folder)
    assert shown.exit_code == 1
    assert '+   "description": "edited in git",' in shown.stdout.splitlines()
    (folder / "versions.json").write_text((folder / "versions.json").read_text() + "\n")
    before = {each: each.read_bytes() for each in folder.iterdir()}
    assert served("specs", "push", folder, "--dry-run").exit_code == 0
    assert latest(served)[:2] == (1, 1)
    assert {each: each.read_bytes() for each in folder.iterdir()} == before
    pushed = served("specs", "push", folder, "--reason", "from git")
    assert (pushed.exit_code, pushed.stdout) == (0, f"{NAME}: pushed\n")
    assert latest(served) == (2, 2, "edited in git")
    assert set(states(served, folder).values()) == {"same"}


def test_a_new_file_is_a_new_spec_and_a_wrong_one_saves_nothing(served: CommandLine, folder: Path) -> None:
    new = folder / "new.json"
    new.write_text((SPECS / "orders.json").read_text())
    edit(new, name="new", source="new")
    assert states(served, folder)["new"] == "only here"
    edit(folder / f"{NAME}.json", operations=[{"operation": "shfit"}])
    refused = served("specs", "push", folder)
    assert refused.exit_code == 1
    assert "/operations/0/operation" in refused.stderr
    (folder / f"{NAME}.json").unlink()
    assert served("specs", "push", folder).exit_code == 0
    assert states(served, folder) == {
        "new": "same", NAME: "only in the service", "shop-amplitude": "same", "shop-segment": "same",
    }  # fmt: skip
    (folder / "again.json").write_bytes(new.read_bytes())
    assert served("specs", "diff", folder).exit_code == 2


def test_a_newer_version_is_pulled_where_nothing_was_edited(served: CommandLine, folder: Path) -> None:
    elsewhere(served, description="edited on a page")
    assert states(served, folder)[NAME] == "changed in the service"
    assert served("specs", "push", folder).exit_code == 0
    assert latest(served)[2] == "edited on a page"
    assert served("specs", "pull", folder).stdout == f"{NAME}: pulled\n"
    assert json.loads((folder / f"{NAME}.json").read_text())["description"] == "edited on a page"
    served("specs", "activate", NAME, "--version", "1")
    assert states(served, folder)[NAME] == "changed in the service"
    served("specs", "pull", folder)
    assert set(states(served, folder).values()) == {"same"}
    served("specs", "retire", NAME)
    assert states(served, folder)[NAME] == "changed in the service"
    served("specs", "pull", folder)
    assert set(states(served, folder).values()) == {"same"}


def test_what_waits_for_a_second_person_is_said_and_is_no_conflict(served: CommandLine, folder: Path) -> None:
    assert served("attributes", "apply", EXAMPLE / "attributes.json").exit_code == 0
    file = folder / f"{NAME}.json"
    spec = json.loads(file.read_text())
    spec["operations"][0]["spec"]["shop.mail"] = "customer.email"
    file.write_text(json.dumps(spec))
    waiting = served("specs", "push", folder)
    assert (waiting.exit_code, waiting.stdout) == (1, f"{NAME}: waits for approval\n")
    assert "second person" in waiting.stderr
    assert states(served, folder)[NAME] == "changed here"


def test_two_edits_of_one_spec_are_a_conflict_that_loses_none(served: CommandLine, folder: Path) -> None:
    mine = folder / f"{NAME}.json"
    edit(mine, description="edited in git")
    edit(folder / "shop-segment.json", description="edited too")
    elsewhere(served, description="edited on a page")
    refused = served("specs", "push", folder)
    assert refused.exit_code == 1
    assert NAME in refused.stderr
    assert "version 1" in refused.stderr
    assert "version 2" in refused.stderr
    assert states(served, folder)["shop-segment"] == "changed here"
    assert served("specs", "pull", folder).exit_code == 1
    assert json.loads(mine.read_text())["description"] == "edited in git"
    assert latest(served)[2] == "edited on a page"
    mine.unlink()
    assert served("specs", "pull", folder).exit_code == 0
    edit(mine, description="both")
    assert served("specs", "push", folder).exit_code == 0
    assert latest(served) == (3, 3, "both")


def test_a_file_that_was_never_pulled_does_not_overwrite(served: CommandLine, folder: Path) -> None:
    (folder / "versions.json").unlink()
    edit(folder / f"{NAME}.json", description="old copy")
    assert served("specs", "push", folder).exit_code == 1
    assert latest(served)[0] == 1


def test_a_case_that_fails_stops_check_and_push_until_somebody_insists(
    served: CommandLine, folder: Path
) -> None:
    file = folder / f"{NAME}.json"
    edit(file, cases=[{"name": "an empty order", "payload": {}, "output": {"orders": {"last": 1}}}])
    checked = served("check", file)
    assert checked.exit_code == 1
    assert "/cases/0" in checked.stderr
    refused = served("specs", "push", folder)
    assert refused.exit_code == 1
    assert "an empty order" in refused.stderr
    assert latest(served)[:2] == (1, 1)
    assert served("specs", "apply", file).exit_code == 1
    assert served("specs", "push", folder, "--allow-failing-cases").exit_code == 0
    assert latest(served)[:2] == (2, 2)
    assert states(served, folder)[NAME] == "same"
    edit(file, cases=[{"name": "an empty order", "payload": {}}])
    assert served("check", file).exit_code == 0
    assert served("specs", "push", folder).exit_code == 0
    assert latest(served)[:2] == (3, 3)
