"""`idgraph sandboxes`, and `idgraph --sandbox NAME`: from the copy to the promotion, apart from production."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from idgraph.app import metadata_access, wiring
from idgraph.app.metadata_server import sandbox_activity, serving_here
from idgraph.app.settings.document import Settings
from idgraph.app.settings.sandbox import in_sandbox
from idgraph.model.events import RawRecord
from idgraph.model.identifiers import Identifier
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from ingestion.stages.map_stage import MapStage
from tests.app.conftest import CommandLine
from tests.retail import EXAMPLE, Pipeline, durable_keys, order, raw, records, snapshot
from transforms.spec.mapping import CompiledSnapshot

pytestmark = pytest.mark.slow


@contextmanager
def served_sandbox(command: CommandLine, patch: pytest.MonkeyPatch, name: str) -> Iterator[Settings]:
    """Its service, at a free port: the URL of production is set so that the one of the sandbox is this."""
    with serving_here(in_sandbox(command.settings(), name)) as url, patch.context() as inside:
        inside.setenv("IDGRAPH_METADATA__URL", f"http://127.0.0.1:{(urlsplit(url).port or 0) - 100}")
        yield in_sandbox(command.settings(), name)


def test_a_spec_is_tried_in_a_sandbox_and_promoted(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = sorted((EXAMPLE / "specs").glob("*.json"))
    for file in specs:
        assert served("specs", "apply", file).exit_code == 0
    made = served("sandboxes", "create", "try", "--reason", "a try")
    assert made.exit_code == 0, made.output
    assert served("sandboxes", "create", "try").exit_code == 1
    edited = json.loads(specs[0].read_text()) | {"description": "tried"}
    (served.folder / "edited.json").write_text(json.dumps(edited))
    with served_sandbox(served, monkeypatch, "try") as sandbox:
        assert served("--sandbox", "try", "keys", "init").exit_code == 0
        saved = served("--sandbox", "try", "specs", "apply", served.folder / "edited.json")
        assert saved.exit_code == 0, saved.output
        pinned = metadata_access.newest_snapshot(sandbox)
        assert pinned is not None
        with wiring.opened(sandbox) as resources:
            keys = durable_keys(sandbox.directory)
            pipeline = Pipeline(
                sandbox.directory, keys, resources.store, resources.index, snapshot=pinned.snapshot
            )
            pipeline.process(records(20))
            stored = resources.store.count()
            pipeline.data_keys.close()
        assert len(served("--sandbox", "try", "export").stdout.splitlines()) > 1
    assert served("export").stdout == ""
    compared = served("sandboxes", "compare", "try", "--json")
    (found,) = json.loads(compared.stdout)["items"]
    assert (found["kind"], found["name"], found["state"]) == ("spec", edited["name"], "changed")
    shown = served("sandboxes", "compare", "try").stdout
    assert edited["name"] in shown
    assert str(stored) in shown
    (served.settings().directory / "sandboxes/try/keyring.json").rename(served.folder / "kept.json")
    active = sandbox_activity(served.settings(), "try").sandbox  # Without a key.
    assert active is not None
    assert (active.fragments, active.dead_letters, active.flows) == (stored, 0, [])
    (served.folder / "kept.json").rename(served.settings().directory / "sandboxes/try/keyring.json")
    (planned,) = served.json("sandboxes", "promote", "try", "--dry-run", "--json")
    assert planned["outcome"] == "planned"
    (done,) = served.json(
        "sandboxes", "promote", "try", f"spec:{edited['name']}", "--reason", "good", "--json"
    )
    assert done["outcome"] == "published"
    assert json.loads(served("specs", "show", edited["name"]).stdout)["description"] == "tried"
    assert served("sandboxes", "promote", "try", f"spec:{edited['name']}").exit_code == 3
    assert served("sandboxes", "promote", "try", "spaec:x").exit_code == 2
    place = served.settings().directory / "sandboxes" / "try"
    assert (place / "keyring.json").exists()
    assert served("sandboxes", "delete", "try", given=b"no\n").exit_code == 1
    assert place.exists()
    assert served("sandboxes", "delete", "try", "--yes").exit_code == 0
    assert not place.exists()


def mapped(sandbox: Settings, given: list[RawRecord]) -> tuple[set[str], int]:
    """The fragments that a flow of the sandbox makes of events, and how many of these it refuses."""
    with wiring.opened(sandbox) as resources:
        stage = MapStage(
            CompiledSnapshot(snapshot()),
            sandbox.sources_by_name(),
            sandbox.flow,
            BatchAttempt("0", "first"),
            resources.data_keys,
            resources.blind_index,
            DeadLetterWriter(resources.sealer),
            tombstones=resources.tombstones,
        )
        outputs = list(stage.run(given))
    return {name for each in outputs for name in each.fragments}, sum(each.erased for each in outputs)


def test_nobody_who_was_erased_in_production_comes_back_in_a_sandbox(
    filled: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by review: a sandbox read erased persons from the sources again, whose tombstones are under production's keys."""
    settings = filled.settings()
    with serving_here(settings) as url:
        monkeypatch.setenv("IDGRAPH_METADATA__URL", url)
        assert filled("sandboxes", "create", "try").exit_code == 0
        sandbox = in_sandbox(settings, "try")
        assert filled("--sandbox", "try", "keys", "init").exit_code == 0
    given = [order(1, 1), order(2, 2), identify(7, 3), identify(8, 4)]
    before, refused = mapped(sandbox, given)
    assert (len(before), refused) == (4, 0)
    # One is named by a protected identifier, whose hash is another one here; the other by one that is readable.
    with wiring.opened(settings) as resources:
        hashed = resources.blind_index.hashed(Identifier("email", "p1@example.com"))
        until = 1_717_200_000_000  # June 2024
        resources.store.erase([str(hashed), "user_id:7"], until)
    after, refused = mapped(sandbox, given)
    assert (len(after), refused) == (2, 2)
    assert "user_id:7" not in after
    assert after < before
    later = order(1, 5, created_at="2024-07-01T00:00:00Z")
    assert mapped(sandbox, [later])[0] == before - after - {"user_id:7"}, "it is of after the erasure"
    with wiring.opened(settings) as resources:
        resources.store.finish([str(hashed), "user_id:7"])
        resources.store.cancel([str(hashed)])
    assert len(mapped(sandbox, given)[0]) == 3


def identify(user: int, line: int) -> RawRecord:
    content = {
        "type": "identify",
        "messageId": f"m{line}",
        "userId": str(user),
        "timestamp": "2024-03-01T00:00:00Z",
    }
    return raw(content, line, "segment")


def test_an_unknown_sandbox_makes_no_folder(served: CommandLine) -> None:
    assert served("sandboxes", "create", "try").exit_code == 0
    for words in (("search", "x"), ("keys", "init"), ("serve", "metadata"), ("run",)):
        result = served("--sandbox", "tyr", *words)
        assert result.exit_code == 2, words
        assert "try" in result.stderr
    assert served("--sandbox", "try", "publish", "orders", given=b"{}\n").exit_code == 2
    for command in ("compare", "promote", "delete"):
        result = served("sandboxes", command, "tyr", given=b"")
        assert result.exit_code == 3, command
        assert "try" in result.stderr
    assert [each.name for each in (served.settings().directory / "sandboxes").iterdir()] == ["try"]
    (listed,) = served.json("sandboxes", "list", "--json")
    assert listed["name"] == "try"


def test_a_sandbox_has_nothing_of_production_but_its_sources(served: CommandLine) -> None:
    assert served("sandboxes", "create", "one").exit_code == 0
    assert served("sandboxes", "create", "two").exit_code == 0
    production = served.settings()
    sandboxes = [in_sandbox(production, name) for name in ("one", "two")]
    for each in sandboxes:
        assert each.sources == production.sources
        for place in (each.keyring_file(), each.token_file(), each.flow_token_file(), each.flow_state()):
            assert place.is_relative_to(each.directory)
        assert each.directory.is_relative_to(production.directory)
        assert each.sandboxes() is None
    urls = {each.metadata.url for each in (production, *sandboxes)}
    ports = {each.profiles.port for each in (production, *sandboxes)}
    assert len(urls) == len(ports) == 3


@pytest.mark.parametrize("table", ['[index]\nkind = "elasticsearch"', '[store]\nkind="dynamodb"\nregion="x"'])
def test_only_embedded_stores_have_sandboxes(idgraph: CommandLine, table: str) -> None:
    file = idgraph.folder / "idgraph.toml"
    file.write_text(f"{file.read_text()}\n{table}\n")
    result = idgraph("--sandbox", "try", "search", "x")
    assert result.exit_code == 2
    assert "embedded" in result.stderr


def test_an_erasure_names_the_sandboxes(
    filled: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving_here(filled.settings()) as url, monkeypatch.context() as inside:
        inside.setenv("IDGRAPH_METADATA__URL", url)
        assert filled("sandboxes", "create", "try").exit_code == 0
    known = json.loads(filled("export").stdout.splitlines()[0])
    person = next(iter(known["fragments"]), "") if "fragments" in known else str(known["id"])
    preview = filled("erase", "--fragment", person, "--dry-run")
    assert "--sandbox try" in preview.stderr
    receipt = tmp_path / "receipt.json"
    erased = filled("erase", "--fragment", person, "--yes", "--receipt", receipt)
    assert erased.exit_code == 0, erased.output
    assert "--sandbox try" in erased.stderr
    assert json.loads(receipt.read_text())["sandboxes"] == ["try"]
