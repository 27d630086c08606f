"""Row patterns: their text, their conditions, absence, what a derived attribute shows, and bounded steps."""

from __future__ import annotations

from typing import Any

import pytest

from idgraph.model.behaviour import Pattern
from idgraph.model.errors import SpecError, SpecLimitError
from idgraph.model.timelines import Entry
from tests.transforms.behaviour.naive import BEGIN, DAY, HOUR, MINUTE, derived, entry
from transforms.behaviour.derivations import Derived, compile_derived
from transforms.behaviour.patterns import Matches, compile_pattern
from transforms.behaviour.patterns.conditions import RowConditions
from transforms.behaviour.patterns.matching import CONDITION_STEPS, MOST_STEPS

LATER = BEGIN + 1000 * DAY


def pattern(text: str, **options: Any) -> Pattern:
    return Pattern.model_validate({"activities": ["a"], "pattern": text, **options})


def letters(text: str, gap: int = MINUTE) -> list[Entry]:
    return [entry(BEGIN + number * gap, number, c=letter, n=number) for number, letter in enumerate(text)]


def matched(text: str, letters_of_entries: str, now: int = LATER, **options: Any) -> list[str]:
    """The variables of each match, where a variable takes the entries of its letter."""
    define = {name: f"c == '{name.lower()}'" for name in "ABCD" if name in text}
    found = compile_pattern(pattern(text, **{"define": define, **options}))(
        {"a": letters(letters_of_entries)}, now
    )
    return ["".join(variable for variable, _ in match.rows) for match in found.matches]


# The text.


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", None, "string_too_short"),
        ("   ", 0, "expected a row pattern, found empty text"),
        ("A B)", 3, "')' cannot stand here"),
        ("(A B", 0, "the '(' is not closed"),
        ("A |", 3, "expected a variable or '(', found the end"),
        ("A | | B", 4, "'|' cannot stand here"),
        ("* A", 0, "'*' cannot stand here"),
        ("A+*", 2, "a part has one quantifier"),
        ("A {2} {3}", 6, "a part has one quantifier"),
        ("A{3,2}", 1, "a quantifier cannot end at 2 and begin at 3"),
        ("A{}", 1, "a quantifier needs a number"),
        ("A{99999999}", 1, "a quantifier has at most 10000"),
        ("A{1,99999999}", 1, "a quantifier has at most 10000"),
        ("A{x}", 1, "'{' cannot stand here"),
        ("A {- B -} C", 2, "'{' cannot stand here"),
        ("A, B", 1, "',' cannot stand here"),
        ('"A"', 0, "'\"' cannot stand here"),
        ("PERMUTE(A, B)", 0, "there is no PERMUTE"),
        ("^ $", None, "it has no variable"),
        ("A previous", 2, "no variable can be named previous"),
        ("B " + "A" * 70, 2, "the name of a variable has at most 64 characters"),
        ("(" * 65 + "A" + ")" * 65, 64, "parentheses are nested deeper than 64"),
        ("((A{1000}){1000}){1000}", 2, "the quantifiers make more than 10000 steps of the pattern"),
    ],
)
def test_a_wrong_text_is_an_error_at_its_place(text: str, offset: int | None, message: str) -> None:
    if not text:
        with pytest.raises(ValueError, match=message):
            pattern(text)
        return
    with pytest.raises(SpecError) as raised:
        compile_pattern(pattern(text))
    assert raised.value.pointer == "/pattern"
    assert raised.value.offset == offset
    assert message in raised.value.message
    if offset is not None and offset < len(text) and text.strip():
        assert f"character {offset + 1}:" in raised.value.message


def test_the_longest_repetition_of_nothing_is_compiled_at_once() -> None:
    assert matched("A ((){10000}){10000}", "a") == ["A"]


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"define": {"B": "c == 'b'"}}, "/define/B"),
        ({"define": {"A": "c == "}}, "/define/A"),
        ({"define": {"A": "nothing(c)"}}, "/define/A"),
        ({"skip": "to_last B"}, "/skip"),
        ({"wait": "1h"}, "/wait"),
    ],
)
def test_a_wrong_definition_is_an_error_at_its_place(options: dict[str, Any], pointer: str) -> None:
    with pytest.raises(SpecError) as raised:
        compile_pattern(pattern("A+", **options))
    assert raised.value.pointer == pointer
    with pytest.raises(SpecError) as raised:
        compile_derived(derived(pattern=pattern("A+", **options)))
    assert raised.value.pointer == "/pattern" + pointer


@pytest.mark.parametrize("skip", ["to_first", "to_first A B", "to_middle A", "past_last_row "])
def test_skip_has_four_forms(skip: str) -> None:
    with pytest.raises(ValueError, match="string_pattern_mismatch"):
        pattern("A", skip=skip)


def test_names_differ_by_case() -> None:
    define = {"A": "c == 'a'", "a": "c == 'b'"}
    assert matched("A a", "ab", define=define) == ["Aa"]
    assert matched("a A", "ab", define=define) == []


# Conditions.


def test_a_condition_compares_with_earlier_variables() -> None:
    rows = [entry(BEGIN + n, n, country=country, n=n) for n, country in enumerate(["de", "de", "fr"])]
    run = compile_pattern(
        pattern("A+ B", define={"B": "country != A.country && first.A.n == `0` && A.n == `1`"})
    )
    (match,) = run({"a": rows}, LATER).matches
    assert {name: [each.fields["n"] for each in entries] for name, entries in match.entries.items()} == {
        "A": [0, 1],
        "B": [2],
    }


def test_the_entry_at_hand_is_the_last_of_its_variable() -> None:
    assert matched("A+", "aa", define={"A": "A.n == n && A.time == time"}) == ["AA"]


def test_a_condition_sees_the_activity_and_the_time() -> None:
    run = compile_pattern(
        Pattern(
            activities=("carts", "orders"),
            pattern="C O",
            define={
                "C": "activity == 'carts'",
                "O": "activity == 'orders' && sum([C.time, `60000`]) >= time",
            },
        )
    )
    carts, orders = [entry(BEGIN, 1)], [entry(BEGIN + MINUTE, 2)]
    assert len(run({"carts": carts, "orders": orders}, LATER).matches) == 1
    assert len(run({"carts": carts, "orders": [entry(BEGIN + MINUTE + 1, 2)]}, LATER).matches) == 0


def test_a_variable_hides_a_field_of_its_name_from_conditions_that_name_it() -> None:
    rows = [entry(BEGIN, 1, A="field"), entry(BEGIN + 1, 2, A="field")]
    run = compile_pattern(pattern("A B", define={"B": "A.A == 'field' && A != 'field'"}))
    assert len(run({"a": rows}, LATER).matches) == 1


def test_a_condition_that_cannot_be_evaluated_is_false() -> None:
    assert matched("A", "a", define={"A": "abs(c) == `1`"}) == []
    assert matched("A | B", "a", define={"A": "abs(c) == `1`"}) == ["B"]


# Entries.


def test_entries_of_several_activities_are_one_sequence() -> None:
    timelines = {
        "a": [entry(BEGIN, 2), entry(BEGIN + 2, 1, "a"), entry(BEGIN + 2, 1, "z")],
        "b": [entry(BEGIN, 1), entry(BEGIN, 2), entry(BEGIN + 2, 1, "m")],
        "c": [entry(BEGIN + 1, 9)],
    }
    run = compile_pattern(
        Pattern(activities=("b", "a", "b"), pattern="(A | B)+", define={"A": "activity == 'a'"})
    )
    (match,) = run(timelines, LATER).matches
    # One event may leave entries of two activities: these stand as the definition names the activities.
    assert [(name, each.time - BEGIN, each.source, each.event_id) for name, each in match.rows] == [
        ("B", 0, "shop", "e1"),
        ("B", 0, "shop", "e2"),
        ("A", 0, "shop", "e2"),
        ("A", 2, "a", "e1"),
        ("B", 2, "m", "e1"),
        ("A", 2, "z", "e1"),
    ]


def test_an_entry_counts_after_its_time() -> None:
    run = compile_pattern(pattern("A"))
    assert run({"a": letters("a")}, BEGIN) == Matches([], BEGIN + 1)
    found = run({"a": letters("a")}, BEGIN + 1)
    assert (len(found.matches), found.changes_at) == (1, None)


def test_within_reaches_from_the_first_to_the_last_entry_inclusive() -> None:
    assert matched("A B C", "abc", within="2m") == ["ABC"]
    assert matched("A B C", "abc", within="119s") == []
    # It takes part in the search: the run is cut, not refused.
    assert matched("A+", "aaaaa", within="1m") == ["AA", "AA", "A"]


def test_a_skip_that_goes_nowhere_goes_to_the_next_row() -> None:
    assert matched("A+", "aaa", skip="to_first A") == ["AAA", "AA", "A"]
    assert matched("A+ B?", "aa", skip="to_last B") == ["AA", "A"]


@pytest.mark.parametrize(
    ("text", "letters_of_entries", "matches"),
    [
        ("(B* B?)+ A?? B", "bbab", ["BBAB", "BAB", "AB", "B"]),
        ("(((A*? | (A*? | C)) (C*?)+)+)+ C? A", "abbab", ["A", "CCA", "CA", "A"]),
    ],
)
def test_a_round_that_took_no_entry_says_nothing_of_one_that_did(
    text: str, letters_of_entries: str, matches: list[str]
) -> None:
    """A search ends loops whose round was empty; what it did not try there may match from the next begin."""
    define = {name: f"c == '{name.lower()}'" for name in ("A" if "C" in text else "B")}
    assert matched(text, letters_of_entries, define=define, skip="to_next_row") == matches


# Absence.


def abandoned() -> Any:
    return compile_derived(
        derived(
            pattern={
                "activities": ["carts", "orders"],
                "pattern": "C $",
                "define": {"C": "activity == 'carts'"},
                "wait": "1h",
            }
        )
    )


def test_a_cart_is_abandoned_once_an_hour_has_passed() -> None:
    cart = entry(BEGIN, 1, total=30)
    derivation = abandoned()
    before = derivation.of({"carts": [cart]}, {}, BEGIN + HOUR - 1)
    assert before == Derived({"count": 0}, BEGIN + HOUR, [])
    after = derivation.of({"carts": [cart]}, {}, BEGIN + HOUR)
    leaves = {"count": 1, "last.begin": BEGIN, "last.end": BEGIN, "last.C.total": 30}
    assert after == Derived(leaves, None, [cart])


def test_an_order_within_the_hour_saves_the_cart_and_one_later_does_not() -> None:
    derivation = abandoned()
    carts = [entry(BEGIN, 1)]
    saved = derivation.of({"carts": carts, "orders": [entry(BEGIN + HOUR - 1, 2)]}, {}, LATER)
    assert (saved.leaves, saved.changes_at) == ({"count": 0}, None)
    # Whoever looked between saw it abandoned; so does everybody later.
    late = derivation.of({"carts": carts, "orders": [entry(BEGIN + HOUR, 2)]}, {}, LATER)
    assert late.leaves["count"] == 1


def test_each_silence_counts_and_the_end_of_a_run_of_carts_is_one() -> None:
    carts = [entry(BEGIN + at, at) for at in (0, MINUTE, 3 * HOUR, 3 * HOUR + MINUTE, 9 * HOUR)]
    found = abandoned().of({"carts": carts}, {}, BEGIN + 9 * HOUR + 1)
    assert (found.leaves["count"], found.changes_at) == (2, BEGIN + 10 * HOUR)


def test_a_due_moment_is_named_only_where_the_search_asked_for_it() -> None:
    rows = {"a": letters("ab")}
    run = compile_pattern(pattern("A $", define={"A": "c == 'a'"}, wait="1h"))
    assert run(rows, BEGIN + 2 * MINUTE) == Matches([], None)
    run = compile_pattern(pattern("B $", define={"B": "c == 'b'"}, wait="1h"))
    assert run(rows, BEGIN + 2 * MINUTE) == Matches([], BEGIN + MINUTE + HOUR)


def test_without_a_wait_the_end_is_that_of_the_entries_so_far() -> None:
    assert matched("A $", "a") == ["A"]
    assert matched("A $", "ab") == []
    assert matched("A $", "ab", now=BEGIN + 1) == ["A"]


# What is shown.


def test_a_match_counts_while_its_end_is_in_the_window() -> None:
    derivation = compile_derived(derived(pattern=pattern("A B", over="1h")))
    first, second = letters("ab")
    rows = {"a": [first, second]}
    found = derivation.of(rows, {}, BEGIN + 2 * MINUTE)
    assert found.leaves["count"] == 1
    leaves_at = (second.time // (5 * MINUTE) + 1) * 5 * MINUTE + HOUR
    assert found.changes_at == leaves_at
    assert derivation.of(rows, {}, leaves_at - 1).leaves["count"] == 1
    assert derivation.of(rows, {}, leaves_at) == Derived({"count": 0}, None, [])


def test_a_match_that_began_before_the_window_counts() -> None:
    derivation = compile_derived(derived(pattern=pattern("A B", over="1h")))
    rows = [entry(BEGIN, 1), entry(BEGIN + 3 * HOUR, 2)]
    assert derivation.of({"a": rows}, {}, BEGIN + 3 * HOUR + 1).leaves["count"] == 1


def test_the_last_match_has_the_fields_of_the_last_entry_of_each_variable() -> None:
    rows = [
        entry(BEGIN, 1, page="x", nothing=None),
        entry(BEGIN + 1, 2, page="y", more={"deep": 1, "dot.ted": 2}),
        entry(BEGIN + 2, 3, paid=True),
    ]
    found = compile_derived(derived(pattern=pattern("V+ P Q?", define={"P": "paid"}))).of(
        {"a": rows}, {}, LATER
    )
    assert found.leaves == {
        "count": 1,
        "last.begin": BEGIN,
        "last.end": BEGIN + 2,
        "last.V.page": "y",
        "last.V.more.deep": 1,
        "last.V.more.dot\\.ted": 2,
        "last.P.paid": True,
    }
    assert found.entries == rows[::-1]


def test_it_rests_on_the_newest_hundred_entries_each_once() -> None:
    rows = letters("a" * 150)
    found = compile_derived(derived(pattern=pattern("A A", skip="to_next_row"))).of({"a": rows}, {}, LATER)
    assert found.leaves["count"] == 149
    assert found.entries == rows[:-101:-1]


@pytest.mark.parametrize(
    ("over", "whole_from", "is_complete"),
    [
        ("all", None, True),
        ("all", BEGIN, True),
        ("all", BEGIN + 1, False),
        ("1h", BEGIN, True),
        ("1h", LATER, False),
    ],
)
def test_it_is_complete_where_no_entry_can_be_missing(
    over: str, whole_from: int | None, is_complete: bool
) -> None:
    derivation = compile_derived(derived(pattern=pattern("A", over=over)))
    whole = {} if whole_from is None else {"a": whole_from}
    assert derivation.of({"a": letters("a")}, {}, BEGIN + 2 * HOUR, whole).is_complete is is_complete


def test_it_rests_on_entries_as_old_as_a_match_that_counts_may_begin() -> None:
    derivation = compile_derived(derived(pattern=pattern("A B", over="1h", within="2h")))
    now = BEGIN + 10 * HOUR
    assert derivation.of({"a": []}, {}, now, {"a": now - 3 * HOUR}).is_complete
    assert not derivation.of({"a": []}, {}, now, {"a": now - 3 * HOUR + 1}).is_complete
    rows = [entry(BEGIN, 1), entry(now - 1, 2)]
    loose = compile_derived(derived(pattern=pattern("A B", over="1h")))
    assert loose.of({"a": rows}, {}, now, {"a": BEGIN}).is_complete
    assert not loose.of({"a": rows}, {}, now, {"a": BEGIN + 1}).is_complete


# Bounded steps.


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("(A*)*", 1),
        ("(A*)* B", 0),
        ("((A+)+)+ B", 0),
        ("(A | A A)* B", 0),
        ("A*? B", 0),
        ("(A? A?)* (A | A)* B", 0),
        ("A X* B | A", 10_000),
    ],
)
def test_ten_thousand_entries_do_not_make_a_pattern_slow(text: str, matches: int) -> None:
    """A search that tried a state twice would go beyond the bound of steps."""
    assert len(matched(text, "a" * 10_000)) == matches


@pytest.mark.parametrize("text", ["(() | ()){1000} | A", "((() | ()){1000} A) | B"])
def test_steps_without_an_entry_are_bounded_too(text: str) -> None:
    with pytest.raises(SpecLimitError, match="steps"):
        matched(text, "a" * 3000, define={"A": "c == 'b'"})


def test_a_pattern_that_takes_too_many_steps_is_an_error() -> None:
    run = compile_pattern(pattern("A+", skip="to_next_row"))
    rows = {"a": letters("a" * 3000)}
    with pytest.raises(SpecLimitError, match="more than 400000 steps over 3000 entries"):
        run(rows, LATER)
    found = compile_derived(derived(pattern=pattern("A+", skip="to_next_row"))).of(rows, {}, LATER)
    assert found.leaves == {}
    assert found.problem is not None
    assert "steps" in found.problem


def test_evaluations_of_conditions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each begin of the match the same entry is compared with another one."""
    evaluated, evaluate = [], RowConditions._evaluate

    def counted(own: RowConditions, *asked: Any) -> bool:
        evaluated.append(asked)
        return evaluate(own, *asked)

    monkeypatch.setattr(RowConditions, "_evaluate", counted)
    with pytest.raises(SpecLimitError, match="steps"):
        matched("A B* C", "a" * 10_000, define={"B": "c == A.c", "C": "c == 'c'"})
    assert len(evaluated) <= MOST_STEPS / (1 + CONDITION_STEPS) + 1
