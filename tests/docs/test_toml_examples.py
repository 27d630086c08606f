"""The examples of `idgraph.toml` on pages can be loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from idgraph.app.settings.document import Settings, load

DOCS = Path(__file__).parents[2] / "docs"


def loaded(page: str, folder: Path) -> Settings:
    blocks = re.findall(
        r"^```toml\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert blocks
    file = folder / "idgraph.toml"
    file.write_text("\n".join(blocks), encoding="utf-8")
    return load(file)


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDGRAPH_CONFIG", raising=False)


def test_keys_in_kms(tmp_path: Path) -> None:
    keys = loaded("security.md", tmp_path).keys
    assert (keys.kind, keys.region) == ("kms", "eu-central-1")


def test_a_decryptor(tmp_path: Path) -> None:
    decryptor = loaded("decryption.md", tmp_path).source("payroll").decryptor
    assert decryptor is not None
    assert (decryptor.capacity, decryptor.on_failure) == (64, "dead_letter")
    assert decryptor.token_file == tmp_path / "decryptor.token"


def test_metrics(tmp_path: Path) -> None:
    assert loaded("monitoring.md", tmp_path).metrics.port == 9410
