"""A command line in a folder of its own, a metadata service on it, and a store filled by the stages."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from idgraph.app import metadata_access, wiring
from idgraph.app.cli import app
from idgraph.app.metadata_server import serving_here
from idgraph.app.settings.document import Settings, load
from idgraph.files import write_atomically
from idgraph.model.snapshots import MetadataSnapshot
from tests.retail import EXAMPLE, Pipeline, attribute, durable_keys, order, records, snapshot
from tests.support.fixtures import each_spec_is_compiled_once  # noqa: F401 - a fixture
from transforms.schema.data_types import DATA_TYPES


class CommandLine(NamedTuple):
    """Runs `idgraph -c FOLDER/idgraph.toml ...` in this process."""

    folder: Path

    def __call__(self, *words: str | Path, given: bytes | None = None) -> Result:
        file = self.folder / "idgraph.toml"
        return CliRunner().invoke(app, ["-c", str(file), *map(str, words)], input=given)

    def settings(self) -> Settings:
        return load(self.folder / "idgraph.toml")

    def json(self, *words: str | Path) -> list[Any]:
        """What a successful command printed, line by line."""
        result = self(*words)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="session", autouse=True)
def one_tree_of_commands() -> Iterator[None]:
    """Made once, as a process does; typer's runner makes it again at each call, which takes longer than most commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def a_busy_service_is_not_away() -> Iterator[None]:
    """A command continues without a service that does not answer at once, as one on a busy machine may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_access, "QUICK_SECONDS", 60.0)
        yield


@pytest.fixture(autouse=True)
def log_levels_as_before() -> Iterator[None]:
    """A command sets the levels of its process, and all commands of the tests share one."""
    before = {logger: logger.level for logger in _loggers()}
    yield
    for logger in _loggers():
        logger.setLevel(before.get(logger, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    return [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]


@contextmanager
def configured(folder: Path) -> Iterator[CommandLine]:
    """A folder with the example's configuration, and nothing else; nobody listens on its URL. It is the current one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("IDGRAPH_"):
                patch.delenv(name)
        patch.chdir(folder)
        text = (EXAMPLE / "idgraph.toml").read_text(encoding="utf-8")
        (folder / "idgraph.toml").write_text(text.replace(":8410", ":9"), encoding="utf-8")
        yield CommandLine(folder)


@pytest.fixture
def idgraph(tmp_path: Path) -> Iterator[CommandLine]:
    with configured(tmp_path) as command:
        yield command


@pytest.fixture
def with_keys(idgraph: CommandLine) -> CommandLine:
    """`filled`, where a test has that too, brings keys."""
    if not idgraph.settings().keyring_file().exists():
        assert idgraph("keys", "init").exit_code == 0
    return idgraph


@pytest.fixture
def served(with_keys: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """With a metadata service that knows nothing yet."""
    with serving_here(with_keys.settings()) as url:
        monkeypatch.setenv("IDGRAPH_METADATA__URL", url)
        yield with_keys


@pytest.fixture
def filled(idgraph: CommandLine, filled_once: Path) -> CommandLine:
    """With forty real events, two dead letters, and the snapshot that the flow saw last."""
    shutil.copytree(filled_once, idgraph.folder, dirs_exist_ok=True)
    return idgraph


@pytest.fixture(scope="session")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `filled` copies."""
    return filled_by(_fill, tmp_path_factory.mktemp("filled"))


def filled_by(fill: Callable[[Settings], None], folder: Path) -> Path:
    """A folder with keys and what `fill` puts there: tests copy it, which takes a tenth of the time."""
    with configured(folder) as command:
        assert command("keys", "init").exit_code == 0
        fill(command.settings())
    return folder


def _fill(settings: Settings) -> None:
    known = snapshot()
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=known)
        pipeline.process(records(40))
        resources.dead_letters.put(
            pipeline.map(order(1, 70, order_id=None), order(2, 71, created_at="soon")).dead_letters
        )
        pipeline.data_keys.close()
    keep_snapshot(settings, known)


def keep_snapshot(settings: Settings, known: MetadataSnapshot) -> None:
    """Let a flow have seen this snapshot last."""
    kept = {"etag": '"1"', "snapshot": known.model_dump(mode="json")}
    settings.flow_state().mkdir(parents=True, exist_ok=True)
    write_atomically(metadata_access.snapshot_file(settings), json.dumps(kept).encode())


def catalogued(shell: CommandLine, **changed: Any) -> MetadataSnapshot:
    """Let the catalogue know all attributes that are stored, as discovery would; `demographics.age` with what is changed."""
    known = snapshot()
    settings = shell.settings()
    with wiring.opened_to_read(settings) as resources:
        reader = wiring.profile_reader(settings, resources, metadata_access.snapshot_to_read_by(settings))
        stored = {
            leaf.path: DATA_TYPES[type(leaf.value)] for each in reader.scan(True) for leaf in each.leaves
        }
    found = {path: attribute(path, kind, status="discovered") for path, kind in stored.items()}
    found |= {each.path: each for each in known.attributes}
    age = found["demographics.age"]
    found[age.path] = age.model_copy(update=changed)
    attributes = tuple(found[path] for path in sorted(found))
    known = known.model_copy(update={"attributes": attributes})
    keep_snapshot(settings, known)
    return known
