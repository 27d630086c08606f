"""The crash matrix: `python -m tests.crashes` plays all cells, which takes half an hour (`--jobs 2` some twenty minutes), and writes the table of
docs/crashes.md. `--only TEXT` plays those whose name holds a text; with `--write` their rows are written, and those of
the other cells stay. Exit code 1 if one ends
with another export than an undisturbed run, byte for byte (`cmp`).
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.crashes.cells import Cell, cells, groups_of_cells
from tests.crashes.scenes import SHARES, Scene, events
from tests.installation import Shop
from tests.spark.conftest import serving_shop
from tests.undisturbed import take

DOCUMENT = Path(__file__).parents[2] / "docs" / "crashes.md"
BEGIN = "<!-- made by python -m tests.crashes: begin -->"
END = "<!-- made by python -m tests.crashes: end -->"


class Outcome(NamedTuple):
    """How a cell ended; `wrong` is empty if it ended well."""

    cell: Cell
    deaths: int
    runs: int
    seconds: float
    wrong: str


def main() -> int:
    """Plays the cells."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("--only", help="cells whose name holds this text")
    parser.add_argument("--write", action="store_true", help="write the rows of these cells")
    parser.add_argument("--list", action="store_true", help="name the cells")
    parser.add_argument("--jobs", type=int, default=1, help="so many at once (default 1)")
    options = parser.parse_args()
    chosen = [cell for cell in cells() if options.only is None or options.only in cell.name()]
    if options.list:
        print("\n".join(cell.name() for cell in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="crashes-") as name, serving_shop(Path(name)) as (shop, _):
        reference = undisturbed(Path(name) / "reference", shop)

        def some(number: int, cells: list[Cell]) -> list[Outcome]:
            outcomes = played(cells, Path(name) / f"cell-{number}", shop, reference)
            for cell, _, _, seconds, wrong in outcomes:
                print(f"{cell.name()}: {wrong or 'same'}, {seconds:.0f} s", flush=True)
            return outcomes

        scenes = together(chosen)
        with ThreadPoolExecutor(options.jobs) as jobs:
            outcomes = [each for found in jobs.map(some, range(len(scenes)), scenes) for each in found]
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"{len(outcomes)} cells, {len(wrong)} wrong")
    if options.only is None or options.write:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(rewritten(text, outcomes), encoding="utf-8")
    return 1 if wrong else 0


def undisturbed(folder: Path, shop: Shop) -> Scene:
    """The same events, taken with nothing in their way."""
    scene = Scene(folder, shop)
    take(scene.installation, {source: events(source) for source in SHARES})
    scene.exported()
    return scene


def together(chosen: list[Cell]) -> list[list[Cell]]:
    """The cells, those in one list that one scene can play."""
    names = {cell.name() for cell in chosen}
    groups = [
        group for each in groups_of_cells() if names.issuperset(group := [c.name() for c in each.cells])
    ]
    shared = {name for group in groups for name in group}
    by_name = {cell.name(): cell for cell in chosen}
    alone = [[cell] for cell in chosen if cell.name() not in shared]
    return [*([by_name[name] for name in group] for group in groups), *alone]


def played(cells: list[Cell], folder: Path, shop: Shop, reference: Scene) -> list[Outcome]:
    """Play cells in one scene; each by itself where that ends otherwise than it should."""
    if len(cells) > 1:
        (group,) = (each for each in groups_of_cells() if each.cells[0].name() == cells[0].name())
        whole = play(cells[0]._replace(play=group.play), folder, shop, reference)
        if not whole.wrong:
            return [whole._replace(cell=cell, seconds=whole.seconds / len(cells)) for cell in cells]
        print(f"{len(cells)} in one scene: {whole.wrong}; now one by one", flush=True)
    return [play(cell, folder / f"{number}", shop, reference) for number, cell in enumerate(cells)]


def play(cell: Cell, folder: Path, shop: Shop, reference: Scene) -> Outcome:
    """Play one cell, and compare how it ended."""
    started = time.monotonic()
    deaths = runs = 0
    try:
        scene = cell.play(folder, shop)
        deaths, runs = scene.deaths, scene.runs
        wrong = ", ".join(scene.differences(reference))
    except AssertionError as error:
        wrong = str(error)[:1000] or "an assertion failed"
    return Outcome(cell, deaths, runs, time.monotonic() - started, wrong)


def rewritten(text: str, outcomes: list[Outcome]) -> str:
    """The document with the rows of these outcomes in its table, in the order of the cells."""
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = {_place(line): line for line in table.splitlines() if line.startswith("| ")}
    for cell, _, runs, _, wrong in outcomes:
        row = f"{_start(cell)} {runs} | {f'**{wrong}**' if wrong else 'same'} |"
        rows[_place(row)] = row
    kept = [rows[_start(cell)] for cell in cells() if _start(cell) in rows]
    written = [
        "| where | killed | strategy | runs | export |",
        "|---|---|---|---|---|",
        *kept,
        "",
        f"{len(kept)} cells, {sum('**' in row for row in kept)} wrong; {sum(SHARES.values()):,} events each, some "
        f"twice. Python {platform.python_version()}.",
    ]
    return "\n".join([before + BEGIN, "", *written, "", END + after])


def _start(cell: Cell) -> str:
    return f"| {cell.where} | {cell.killed} | {cell.strategy} |"


def _place(row: str) -> str:
    return "|".join(row.split("|")[:4]) + "|"


if __name__ == "__main__":
    sys.exit(main())
