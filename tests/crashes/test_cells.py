"""Some of the crash matrix's cells; `python -m tests.crashes` plays them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.app.java import require_java
from idgraph.model.errors import ConfigError
from tests.crashes.__main__ import BEGIN, DOCUMENT, END, Outcome, play, rewritten, undisturbed
from tests.crashes.cells import cells
from tests.crashes.scenes import Scene
from tests.installation import Shop
from tests.spark.conftest import serving_shop

pytestmark = pytest.mark.long


PLAYED = (
    "rows are written, not committed, worker, low_latency",
    "a backfill beside the running stream, backfill, high_throughput",
    pytest.param("checkpoint torn: all of these, power, adaptive", marks=pytest.mark.long),
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    try:
        require_java()
    except ConfigError as error:
        pytest.skip(str(error))
    with serving_shop(tmp_path_factory.mktemp("shop")) as (shop, _):
        yield shop


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, shop: Shop) -> Scene:
    return undisturbed(tmp_path_factory.mktemp("reference") / "scene", shop)


@pytest.mark.spark
@pytest.mark.parametrize("name", PLAYED)
def test_the_export_is_the_same(name: str, tmp_path: Path, shop: Shop, reference: Scene) -> None:
    (cell,) = [cell for cell in cells() if cell.name() == name]
    outcome = play(cell, tmp_path / "scene", shop, reference)
    assert outcome.wrong == ""


def test_each_cell_has_a_name_of_its_own() -> None:
    names = [cell.name() for cell in cells()]
    assert len(names) == len(set(names))


def test_the_table_has_a_row_for_each_cell_of_today() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2]
    assert [
        cell.name() for cell in cells() if f"| {cell.where} | {cell.killed} | {cell.strategy} |" not in text
    ] == []
    assert "**" not in text


def test_rows_are_replaced_and_what_is_wrong_stands_out() -> None:
    first, second = cells()[:2]
    text = rewritten(f"Before.\n{BEGIN}\n{END}\nAfter.\n", [Outcome(first, 1, 2, 3.0, "the export")])
    assert f"| {first.where} | {first.killed} | {first.strategy} | 2 | **the export** |" in text
    assert "1 cells, 1 wrong" in text
    text = rewritten(text, [Outcome(second, 0, 1, 3.0, ""), Outcome(first, 1, 3, 3.0, "")])
    assert text.index(f"| {first.where} | {first.killed}") < text.index(f"| {second.where} | {second.killed}")
    assert "2 cells, 0 wrong" in text
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
