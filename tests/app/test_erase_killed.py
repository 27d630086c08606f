"""`idgraph erase` killed (kill -9) behind each of its steps, then retried."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from idgraph.app import wiring
from idgraph.jobs.erase.receipt import receipt_hash
from idgraph.model.identifiers import Identifier
from idgraph.model.queries import Query
from sinks.keyring.provider import KeyringFile
from tests.app.conftest import CommandLine
from tests.app.test_erase_command import (
    MAIL,
    WHOM,
    export,
    filled_once,
    ids_of,
    person,
    process,
    remains,
    seen,
)
from transforms.privacy.protected_names import TombstoneNames

pytestmark = pytest.mark.long


__all__ = ["filled_once"]

STEPS = (
    "sinks.tombstone_file:TombstoneFile.append",
    "transforms.privacy.sealing:DataKeys.erase",
    "sinks.sqlite.profiles:SqliteProfileStore.erase",
    "sinks.tantivy.index:TantivyProfileIndex.erase",
    "sinks.sqlite.dead_letters:SqliteDeadLetters.drop",
    "sinks.sqlite.dead_letters:SqliteDeadLetters.compact",
    "sinks.tantivy.index:TantivyProfileIndex.compact",
)

# The command as it is, but that its process dies as soon as one method has returned.
_DIES = """
import os, signal, sys
from importlib import import_module
module, _, names = sys.argv.pop(1).partition(":")
owner, name = names.split(".")
kind = getattr(import_module(module), owner)
whole = getattr(kind, name)
def dies(*given):
    whole(*given)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(kind, name, dies)
from idgraph.app.cli import main
main()
"""


def killed_behind(step: str, idgraph: CommandLine, *words: str) -> None:
    command = [sys.executable, "-c", _DIES, step, "-c", str(idgraph.folder / "idgraph.toml"), *words]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, check=False, capture_output=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("step", STEPS)
def test_the_same_command_again_completes_it(filled: CommandLine, tmp_path: Path, step: str) -> None:
    settings = filled.settings()
    ids = ids_of(filled)
    others = [line for line in export(filled) if line["id"] not in ids]
    receipt = tmp_path / "receipt.json"
    killed_behind(step, filled, "erase", *WHOM, "--yes", "--receipt", str(receipt))
    assert not receipt.exists()
    # What was on its way meanwhile.
    process(settings, person())

    (reported,) = filled.json("erase", *WHOM, "--yes", "--json", "--receipt", receipt)
    assert reported == json.loads(receipt.read_bytes())
    assert reported["hash"] == receipt_hash(reported)
    names = TombstoneNames(KeyringFile(settings.keyring_file()))
    assert reported["asked"] == sorted(names(each).hex() for each in WHOM)
    with wiring.opened(settings) as resources:
        hashed = {str(resources.blind_index.identifier(Identifier.parse(each))) for each in WHOM}
    assert reported["fragments"] == sorted({names(each).hex() for each in (*WHOM, *hashed, *ids)})
    assert reported["counts"]["fragments"] == 2
    assert reported["continued"] is (STEPS.index(step) >= 2)

    assert export(filled) == others
    assert remains(settings.directory, ids) == []
    (left,) = filled.json("dead-letters", "list", "--json")
    assert left["position"].endswith("#903")
    with wiring.opened(settings) as resources:
        assert resources.store.unfinished() == []
        assert resources.index.search(Query(), 10_000).ids == sorted(each["id"] for each in others)
    process(settings, person())
    assert export(filled) == others


def test_dead_letters_that_only_the_erased_rows_could_tell(filled: CommandLine) -> None:
    """Found by review: retried with the e-mail address alone, the dead letters of the number stayed for ever."""
    settings = filled.settings()
    killed_behind(STEPS[2], filled, "erase", f"email:{MAIL}", "--yes")
    (reported,) = filled.json("erase", f"email:{MAIL}", "--yes", "--json")
    assert reported["counts"]["dead_letters"] == 3
    assert seen(settings.directory) == []
