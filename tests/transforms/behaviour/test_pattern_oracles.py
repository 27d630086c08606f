"""Row patterns give what the published tests of DuckDB, Trino and Flink expect.

The inputs and the expected rows of these tests are facts in a form of our own; each case names the test that it is from.
`differs` says why ours is not theirs: then `expected` is what we give.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.behaviour import Pattern
from idgraph.model.timelines import Entry
from transforms.behaviour.patterns import Match, compile_pattern

CASES = Path(__file__).parent / "cases"
SUITES = ("duckdb", "flink", "trino")
MADE_BY = (1, "spec", 1)
END = 10**13


def cases() -> Iterator[Any]:
    for name in SUITES:
        suite = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
        for case in suite["cases"]:
            table = suite["tables"][case["table"]]
            yield pytest.param(table, case, id=f"{name}: {case['from']}, {case['pattern']}")


def entries(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Entry]:
    """Rows as entries: at the minute or second of that column, else a second apart."""
    made = []
    for number, row in enumerate(rows):
        fields = dict(zip(columns, row, strict=True))
        time = 1000 * number
        if "minute" in fields or "second" in fields:
            time = fields["minute"] * 60_000 if "minute" in fields else fields["second"] * 1000
        made.append(Entry(time, "s", f"{number:04}", MADE_BY, fields))
    return made


def facts(match: Match, wanted: dict[str, Any]) -> dict[str, Any]:
    """Of a match the facts that are asked for."""
    by_variable = match.entries
    found: dict[str, Any] = {}
    for fact, value in wanted.items():
        if fact == "length":
            found[fact] = len(match.rows)
        elif fact == "labels":
            found[fact] = " ".join(variable for variable, _ in match.rows)
        elif fact == "rows":
            found[fact] = {column: [entry.fields[column] for _, entry in match.rows] for column in value}
        elif fact in {"first", "last"}:
            fields = match.rows[0 if fact == "first" else -1][1].fields
            found[fact] = {column: fields[column] for column in value}
        elif fact == "count_of":
            found[fact] = {variable: len(by_variable.get(variable, ())) for variable in value}
        else:
            assert fact in {"first_of", "last_of"}
            place = 0 if fact == "first_of" else -1
            found[fact] = {
                variable: by_variable[variable]
                and {column: by_variable[variable][place].fields[column] for column in columns}
                if variable in by_variable
                else None
                for variable, columns in value.items()
            }
    return found


@pytest.mark.parametrize(("table", "case"), list(cases()))
def test_the_rows_that_others_expect(table: dict[str, Any], case: dict[str, Any]) -> None:
    options = {name: case[name] for name in ("skip", "within", "wait") if name in case}
    run = compile_pattern(
        Pattern(activities=("a",), pattern=case["pattern"], define=case["define"], **options)
    )
    now = case["now_minute"] * 60_000 if "now_minute" in case else END
    assert case["expected"].keys() == table["partitions"].keys()
    for partition, expected in case["expected"].items():
        rows = entries(table["columns"], table["partitions"][partition])
        matches = run({"a": rows}, now).matches
        if isinstance(expected, list):
            # An empty match of theirs is none of ours.
            wanted = [each for each in expected if each.get("length") != 0]
            assert [facts(match, each) for match, each in zip(matches, wanted, strict=True)] == wanted
        else:
            lengths = [len(match.rows) for match in matches]
            theirs = {"count": expected["count"]} if expected.get("longest") != 0 else {"count": 0}
            found = {"count": len(lengths)}
            if expected.get("longest"):
                found |= {"shortest": min(lengths), "longest": max(lengths)}
                theirs = expected
            assert found == theirs


def test_the_documentation_says_how_many_cases_there_are() -> None:
    suites = [json.loads((CASES / f"{each}.json").read_text(encoding="utf-8")) for each in SUITES]
    assert {suite["license"] for suite in suites} == {"MIT", "Apache-2.0"}
    number = sum(len(suite["cases"]) for suite in suites)
    docs = (Path(__file__).parents[3] / "docs" / "behaviour.md").read_text(encoding="utf-8")
    assert f"Tests compare with {number} published cases of DuckDB, Trino and Flink." in docs
