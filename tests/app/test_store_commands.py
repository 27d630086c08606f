"""`idgraph store create`, and files of an embedded store beside its tables."""

from __future__ import annotations

import hashlib

from tests.app.conftest import CommandLine
from tests.servers.dynamodb import require_dynamodb


def on_dynamodb(shell: CommandLine) -> None:
    prefix = hashlib.sha256(str(shell.folder).encode()).hexdigest()[:20]
    with (shell.folder / "idgraph.toml").open("a") as config:
        config.write(
            f'[store]\nkind = "dynamodb"\nregion = "eu-central-1"\ntable_prefix = "t{prefix}"\n'
            f'endpoint = "{require_dynamodb()}"\n'
        )


def test_files_of_an_embedded_store_are_refused_beside_tables(filled: CommandLine) -> None:
    on_dynamodb(filled)
    refused = filled("dead-letters", "drop", "x")
    assert refused.exit_code == 1
    assert (
        f"{filled.settings().directory / 'dead-letters.db'} is of an installation that keeps it in files"
        in (refused.stderr)
    )
    assert "Name another `directory`, or move the file away" in refused.stderr


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
