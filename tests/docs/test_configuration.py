"""docs/configuration.md says what the configuration's types say, and its example can be used."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from idgraph.app.settings.document import load

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "configuration_reference", ROOT / "scripts" / "configuration_reference.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:

    for name in [name for name in os.environ if name.startswith("IDGRAPH_")]:
        monkeypatch.delenv(name)


def test_the_tables_are_those_of_the_types(script: ModuleType) -> None:
    assert script.rewritten(TEXT) == TEXT, "run: python scripts/configuration_reference.py"


def test_every_key_is_described(script: ModuleType) -> None:
    models: list[type[BaseModel]] = [model for _, model, _ in script.TABLES]
    own_tables = {
        "decryptor",
        "keys",
        "metrics",
        "profiles",
        "metadata",
        "store",
        "index",
        "spark",
        "kafka",
        "pulsar",
        "registry",
        "flow",
        "dead_letters",
        "sources",
        "webhooks",
        "topics",
        "oidc",
    }
    bare = [
        f"{model.__name__}.{name}"
        for model in models
        for name, field in model.model_fields.items()
        if name not in own_tables and not field.description
    ]
    assert bare == []


def test_the_example_can_be_loaded(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    file = tmp_path / "idgraph.toml"
    file.write_text(example, encoding="utf-8")
    settings = load(file)
    assert settings.flow.master == "local[4]"
    assert settings.flow.dead_letters.minimum == 500
    assert [source.name for source in settings.sources] == ["web", "orders", "audit"]
    assert settings.file_source("web").path == tmp_path / "inbox" / "web"
    assert settings.keyring_file() == Path("/etc/idgraph/keyring.json")


@pytest.mark.parametrize(
    ("variable", "value", "seen"),
    [
        ("IDGRAPH_DIRECTORY", "elsewhere", lambda settings: settings.directory.name == "elsewhere"),
        ("IDGRAPH_METADATA__TOKEN", "t", lambda settings: settings.metadata.token == "t"),
        (
            "IDGRAPH_FLOW__DEAD_LETTERS__MAX_RATE",
            "0.5",
            lambda settings: settings.flow.dead_letters.max_rate == 0.5,
        ),
        (
            "IDGRAPH_SOURCES",
            '[{"name": "one", "path": "inbox"}]',
            lambda settings: settings.file_source("one").path.name == "inbox",
        ),
    ],
)
def test_the_environment_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, seen: object
) -> None:
    assert f"`{variable}`" in TEXT
    file = tmp_path / "idgraph.toml"
    file.write_text('directory = "here"\n[metadata]\ntoken = "x"\n', encoding="utf-8")
    monkeypatch.setenv(variable, value)
    assert callable(seen)
    assert seen(load(file))
