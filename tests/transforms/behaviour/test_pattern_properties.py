"""Row patterns equal the naive reference, whatever the pattern and the entries, and change when they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given, reject
from hypothesis import strategies as st

from idgraph.model.behaviour import Pattern
from idgraph.model.durations import milliseconds
from idgraph.model.timelines import Entry
from tests.transforms.behaviour.naive import derived
from tests.transforms.behaviour.naive_patterns import (
    CONDITIONS,
    NODES,
    Naive,
    Node,
    TooManyWaysError,
    has_end,
    rows,
    written,
)
from transforms.behaviour.derivations import compile_derived
from transforms.behaviour.patterns import compile_pattern

DEFINES = st.dictionaries(st.sampled_from("ABC"), st.sampled_from(sorted(CONDITIONS)))
SKIPS = st.sampled_from(["past_last_row", "to_next_row", "to_first A", "to_last A"])
LENGTHS = st.sampled_from([None, "1s", "2s", "5s"])
MOMENTS = st.integers(0, 25_000)


def pattern_of(
    node: Node, define: Mapping[str, str], within: str | None, wait: str | None, skip: str, over: str = "all"
) -> Pattern:
    text = written(node)
    return Pattern(
        activities=("a", "b"),
        pattern=text,
        define={name: condition for name, condition in define.items() if name in text},
        within=within,
        wait=wait if has_end(node) else None,
        skip=skip,
        over=over,
    )


def split(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The entries as two timelines, which the pattern reads as one."""
    return {"a": list(entries[::2]), "b": list(entries[1::2])}


@given(NODES, DEFINES, rows(), LENGTHS, LENGTHS, SKIPS, MOMENTS)
def test_the_matches_are_those_of_the_reference(
    node: Node,
    define: dict[str, str],
    entries: list[Entry],
    within: str | None,
    wait: str | None,
    skip: str,
    now: int,
) -> None:
    pattern = pattern_of(node, define, within, wait, skip)
    counting = [each for each in entries if each.time < now]
    naive = Naive(
        counting,
        {name: CONDITIONS[text] for name, text in pattern.define.items()},
        None if within is None else milliseconds(within),
        0 if pattern.wait is None else milliseconds(pattern.wait),
        now,
    )
    try:
        expected = naive.matches(node, skip)
    except TooManyWaysError:
        reject()
    found = compile_pattern(pattern)(split(entries), now).matches
    assert [[variable for variable, _ in match.rows] for match in found] == [
        list(path) for _, path in expected
    ]
    assert [match.rows[0][1] for match in found] == [counting[begin] for begin, _ in expected]
    for match in found:
        assert (match.begin, match.end) == (match.rows[0][1].time, match.rows[-1][1].time)


@given(NODES, DEFINES, rows(), LENGTHS, LENGTHS, SKIPS, st.sampled_from(["all", "5s", "1h"]), MOMENTS)
def test_nothing_changes_before_the_moment_that_is_named(
    node: Node,
    define: dict[str, str],
    entries: list[Entry],
    within: str | None,
    wait: str | None,
    skip: str,
    over: str,
    now: int,
) -> None:
    # The moments at which an entry begins to count, a wait is over, or an entry leaves the window.
    pattern = pattern_of(node, define, within, wait, skip, over)
    derivation = compile_derived(derived(pattern=pattern))
    found = derivation.of(split(entries), {}, now)
    assert found.changes_at is None or found.changes_at > now
    lengths = [0, *(milliseconds(each) for each in (pattern.wait,) if each)]
    moments = {each.time + length + more for each in entries for length in lengths for more in (0, 1)}
    if over != "all":
        length = milliseconds(over)
        moments |= {
            (each.time // 300_000 + 1) * 300_000 + length + more for each in entries for more in (-1, 0)
        }
    if found.changes_at is not None:
        moments.add(found.changes_at - 1)
    for moment in sorted(moments):
        if now <= moment and (found.changes_at is None or moment < found.changes_at):
            assert derivation.of(split(entries), {}, moment).leaves == found.leaves


@given(NODES, DEFINES, rows(), LENGTHS, SKIPS, MOMENTS)
def test_the_same_entries_give_the_same_result(
    node: Node, define: dict[str, str], entries: list[Entry], within: str | None, skip: str, now: int
) -> None:
    pattern = pattern_of(node, define, within, None, skip)
    run = compile_pattern(pattern)
    first = run(split(entries), now)
    assert run(split(entries), now) == first == compile_pattern(pattern)(split(entries), now)
    assert run({"a": entries}, now) == first == run({"b": entries, "c": entries}, now)


@given(rows(), MOMENTS, st.integers(0, 10_000))
def test_a_silence_that_was_found_stays_found(entries: list[Entry], now: int, later: int) -> None:
    run = compile_pattern(Pattern(activities=("a",), pattern="A+? $", define={"A": "c == 'a'"}, wait="2s"))
    before = run({"a": entries}, now).matches
    assert run({"a": entries}, now + later).matches[: len(before)] == before
