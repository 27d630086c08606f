"""docs/operate.md has the table of all kinds of jobs."""

from __future__ import annotations

from pathlib import Path

from idgraph.jobs.table import JOBS
from idgraph.model.jobs import JobKind

DOC = Path(__file__).parents[2] / "docs" / "operate.md"
HEAD = "| kind | work | command | over HTTP | scope |"


def test_the_documentation_has_each_kind_as_the_table_describes_it() -> None:
    documented = DOC.read_text().partition(HEAD)[2].partition("\n\n")[0].splitlines()[2:]
    assert documented == [
        f"| {kind} | {each.does} | {code(each.command)} | {code(each.request)} | {code(each.scope)} |"
        for kind, each in JOBS.items()
    ]


def test_the_table_has_every_kind() -> None:
    assert set(JOBS) == set(JobKind)


def code(text: str | None) -> str:
    return ", ".join(f"`{each}`" for each in text.split(", ")) if text else "-"
