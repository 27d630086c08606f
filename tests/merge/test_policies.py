"""What each policy shows, case by case."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from idgraph.model import canonical
from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.fragments import LATEST_ONLY, FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexRules
from idgraph.model.stamps import SpecRef, Stamp
from merge import codec
from merge.documents import document
from merge.fragments import FragmentState
from merge.policies import POLICIES
from merge.resolution import shown, tree
from tests.policies import small_bounds

LATEST = ReconciliationPolicy.LATEST


def policies(**stated: str) -> dict[str, Reconciliation]:
    return {
        path.replace("_", "."): Reconciliation(ReconciliationPolicy(policy), ("crm", "shop"))
        for path, policy in stated.items()
    }


def change(
    ordinal: int,
    values: dict[str, Any],
    under: dict[str, Reconciliation],
    source: str = "shop",
    scope: str | None = None,
    version: int = 1,
    priority: int = 0,
) -> FragmentChange:
    origin = Origin(Stamp(priority, ordinal, source, f"{source}-{ordinal}"), SpecRef("spec", version))
    mutations = {
        path: Register(origin, Kind.DELETED if value is None else Kind.PLAIN, value)
        for path, value in values.items()
    }
    return FragmentChange("u:1", origin, mutations, (Identifier("u", "1"),), scope, under)


def stated(*changes: FragmentChange) -> FragmentState:
    state = FragmentState()
    for one in changes:
        state.apply(one)
    state.normalise()
    return FragmentState.decode(state.encode())


def values(state: FragmentState, under: dict[str, Reconciliation]) -> dict[str, Any]:
    return tree((each.path, each.value([part.value for part in each.parts])) for each in shown(state, under))


def of(policy: str, *written: Any, **options: Any) -> Any:
    """What `a` shows after values of ordinals 1, 2, ... came in the opposite order."""
    under = policies(a=policy)
    given = [change(ordinal, {"a": value}, under, **options) for ordinal, value in enumerate(written, 1)]
    return values(stated(*reversed(given)), under).get("a")


@pytest.mark.parametrize(
    ("policy", "written", "expected"),
    [
        ("first", (7, 9, 8), 7),
        ("max", (7, 9, 8), 9),
        ("min", (7, 9, 8), 7),
        ("union", (7, 9, 7, [8, None, 9]), [7, 8, 9]),
        ("append", (7, 9, [7, 8], []), [7, 9, 7, 8]),
        ("sum", (7, 9, 8), 24),
        ("count", (7, "x", [1, 2]), 3),
        ("source_priority", (7, 9, 8), 8),
    ],
)
def test_what_each_policy_makes_of_values(policy: str, written: tuple[Any, ...], expected: Any) -> None:
    assert of(policy, *written) == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_null_deletes_what_is_older_whenever_it_comes(policy: str) -> None:
    assert of(policy, 7, 9, None) is None
    assert of(policy, 9, None, 5) == of(policy, 5)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_later_leaf_above_deletes_and_a_later_one_below_replaces(policy: str) -> None:
    under = policies(a_b=policy)
    below = [change(1, {"a.b": 5}, under), change(2, {"a.b": 6}, under)]
    assert values(stated(*below, change(3, {"a": "leaf"}, under)), under) == {"a": "leaf"}
    assert values(stated(change(1, {"a": "leaf"}, under), change(2, {"a.b": 6}, under)), under) == {
        "a": {"b": of(policy, 6)}
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_a_snapshot_replaces_what_its_source_had_said(policy: str) -> None:
    under = policies(a=policy)
    earlier = [change(1, {"a": 5}, under, scope=""), change(2, {"a": 6}, under, scope="")]
    assert values(stated(*earlier), under)["a"] == of(policy, 6)
    assert values(stated(*earlier, change(3, {"b": 1}, under, scope="")), under) == {"b": 1}


def test_a_snapshot_leaves_what_other_sources_said() -> None:
    under = policies(a="sum")
    given = [
        change(1, {"a": 5}, under, source="crm"),
        change(2, {"a": 6}, under),
        change(3, {"a": 7}, under, scope=""),
    ]
    assert values(stated(*given), under) == {"a": 12}


def test_of_two_versions_of_an_event_the_newer_counts() -> None:
    for policy, expected in (("sum", 10), ("max", 10), ("first", 10), ("append", [10]), ("count", 1)):
        under = policies(a=policy)
        given = [change(1, {"a": 20}, under, version=1), change(1, {"a": 10}, under, version=2)]
        assert values(stated(*given), under) == values(stated(*reversed(given)), under) == {"a": expected}


@pytest.mark.parametrize("policy", ["sum", "count", "append", "max", "first"])
def test_an_event_counts_once_whatever_priority_its_specs_gave_it(policy: str) -> None:
    under = policies(a=policy)
    given = [
        change(1, {"a": 20}, under),
        change(1, {"a": 10}, under, version=2, priority=5),
        change(2, {"a": 5}, under, priority=5),
    ]
    expected = {"sum": 15, "count": 2, "append": [10, 5], "max": 10, "first": 10}[policy]
    assert all(values(stated(*some), under) == {"a": expected} for some in permutations(given))


@pytest.mark.parametrize(
    ("policy", "value"), [("sum", "n/a"), ("union", []), ("append", []), ("max", {"b": []})]
)
def test_a_value_of_which_a_policy_keeps_nothing_shows_behind_a_null_too(policy: str, value: Any) -> None:
    assert of(policy, value) == of(policy, None, value)
    assert of(policy, 5, None, value) == of(policy, value)
    assert of(policy, value, None) is None


def test_sums_are_exact() -> None:
    assert canonical.encode(of("sum", 0.1, 0.2)) == b"0.3"
    assert of("sum", 2**80, 1, -(2**80)) == 1
    assert of("sum", Decimal("0.1000000000000000000000001"), 1) == Decimal("1.1000000000000000000000001")
    assert canonical.encode(of("sum", 79.99, 0.01)) == b"80.0"


def test_a_sum_of_more_digits_than_an_integer_may_have_is_written() -> None:
    """Of two events with the largest integers that there may be, Python refused to write the sum: the export ended
    in the middle."""
    largest = canonical.decode(b"9" * 4300)
    written = canonical.encode(of("sum", largest, largest))
    assert written == b"1" + b"9" * 4299 + b"8"
    assert of("sum", Decimal("9e6144"), Decimal("9e6144")) == Decimal("1.8e6145")
    assert of("sum", Decimal("1e6000"), 1, Decimal("-1e6000")) == 1


def test_what_is_no_number_adds_nothing_and_shows_only_until_one_comes() -> None:
    assert of("sum", "12", True) is True
    assert of("sum", "12", 5, True, [3]) == 5


def test_extremes_compare_exactly_and_across_types() -> None:
    assert of("max", 0.1, Decimal("0.10000000000000000000001")) == Decimal("0.10000000000000000000001")
    assert of("max", 2**70, 1e300, 3) == 1e300
    assert of("max", 10, "9", False) == "9"
    assert of("min", 10, "9", False) is False
    assert of("max", "10", "9") == "9"


def test_a_higher_spec_priority_is_first_and_the_trusted_source_wins() -> None:
    under = policies(a="first", b="source_priority")
    low = change(1, {"a": "low", "b": "shop"}, under)
    high = change(2, {"a": "high"}, under, priority=5)
    trusted = change(0, {"b": "crm"}, under, source="crm")
    assert values(stated(low, high, trusted), under) == {"a": "high", "b": "crm"}


def test_a_null_of_the_trusted_source_lets_the_next_one_speak() -> None:
    under = policies(a="source_priority")
    given = [
        change(1, {"a": "crm"}, under, source="crm"),
        change(2, {"a": "shop"}, under),
        change(3, {"a": "web"}, under, source="web"),
    ]
    silent = change(4, {"a": None}, under, source="crm")
    assert values(stated(*given), under) == {"a": "crm"}
    assert values(stated(*given, silent), under) == {"a": "shop"}
    assert values(stated(*given, silent, change(5, {"a": None}, under)), under) == {"a": "web"}
    other = {"a": Reconciliation(ReconciliationPolicy.SOURCE_PRIORITY, ("web", "crm"))}
    assert values(stated(*given), other) == {"a": "web"}, "another ranking holds for what is stored"


def test_beyond_its_bound_a_sum_says_that_it_is_not_of_all() -> None:
    with small_bounds(3):
        under = policies(a="sum", b="max")
        given = [change(n, {"a": n, "b": -n}, under) for n in range(1, 7)]
        found = {each.path: each for each in shown(stated(*given), under)}
        assert values(stated(*given), under) == {"a": 4 + 5 + 6, "b": -1}
        assert [found["a"].is_complete, found["b"].is_complete] == [False, True]
        assert [each.is_complete for each in shown(stated(*given[:2]), under)] == [True, True]


@pytest.mark.parametrize(("policy", "expected"), [("max", -4), ("min", -6), ("first", -4)])
def test_beyond_its_bound_what_a_null_took_away_stays_away(policy: str, expected: int) -> None:
    """Then the best of the newest shows: what came between the null and these may have been dropped."""
    with small_bounds(3):
        assert of(policy, 100, -100, None, -3, -4, -5, -6) == expected


@pytest.mark.parametrize(("policy", "best"), [("max", 100), ("min", -100), ("first", 7)])
@pytest.mark.parametrize("older", ["null", "leaf above", "snapshot"])
def test_what_is_older_than_the_winner_does_not_take_it_away(policy: str, best: int, older: str) -> None:
    """Found by review: an archive's old null made a maximum one of the newest values, reported as complete."""
    under = policies(a_b=policy)
    removal = {
        "null": change(1, {"a.b": None}, under, source="crm"),
        "leaf above": change(1, {"a": "leaf"}, under, source="crm"),
        "snapshot": change(1, {}, under, scope="a"),
    }[older]
    given = [change(n, {"a.b": value}, under) for n, value in enumerate((best, 1, 2, 3, 4), 2)]
    with small_bounds(3):
        for order in permutations([removal, *given]):
            state = FragmentState()
            for each in order:
                state.join(stated(each))
                state.normalise()
            (found,) = [each for each in shown(state, under) if each.path == "a.b"]
            assert ([each.value for each in found.parts], found.is_complete) == ([best], True)


@pytest.mark.parametrize(("policy", "best"), [("max", 100), ("min", -100), ("first", 7)])
def test_an_extreme_says_when_it_is_of_the_newest_only(policy: str, best: int) -> None:
    under = policies(a=policy)
    taken = [change(1, {"a": best}, under), change(2, {"a": None}, under)]
    with small_bounds(3):
        for count, is_complete in ((1, True), (2, True), (3, False), (4, False)):
            given = [*taken, *(change(2 + n, {"a": n}, under) for n in range(1, count + 1))]
            (found,) = shown(stated(*given), under)
            assert found.is_complete is is_complete
        # Whether there was one between the null and these cannot be determined, but a better one shows again.
        (found,) = shown(stated(*given, change(9, {"a": 1000 if policy == "max" else -1000}, under)), under)
        assert found.is_complete is (policy != "first")


def test_of_what_a_null_took_away_first_keeps_no_value() -> None:
    under = policies(a="first")
    given = [change(1, {"a": "canary"}, under), change(2, {"a": None}, under)]
    for order in permutations(given):
        assert b"canary" not in stated(*order).encode()
    state = stated(*given)
    before = state.encode()
    state.join(stated(given[0]))
    state.normalise()
    assert state.encode() == before


def test_another_policy_shows_what_was_gathered_under_it_or_the_latest() -> None:
    before, after = policies(a="max"), policies(a="sum")
    given = [change(1, {"a": 9}, before), change(2, {"a": 4}, before), change(3, {"a": 2}, after)]
    assert values(stated(*given), before) == {"a": 9}
    assert values(stated(*given), after) == {"a": 2}
    assert values(stated(*given), policies(a="count")) == {"a": 2}, "nothing was counted yet"
    assert values(stated(*given), {}) == {"a": 2}


def test_states_without_cells_have_the_bytes_they_always_had() -> None:
    state = stated(change(1, {"a": 1}, dict(LATEST_ONLY)))
    assert state.encode()[:1] == codec.FORMAT
    assert stated(change(1, {"a": 1}, policies(a="max"))).encode()[:1] == codec.WITH_CELLS


def test_a_null_that_a_leaf_above_outdoes_leaves_no_trace() -> None:
    """Found by a property: whether the null was met before or after what came later showed in the bytes."""
    under = policies(a="union", a_b="union")
    above, null, value = (
        change(1, {"a": None}, under),
        change(1, {"a.b": None}, under),
        change(1, {"a.b": 0}, under, version=2),
    )
    early = stated(above, null)
    early.join(stated(value))
    early.normalise()
    assert early.encode() == stated(above, null, value).encode()


def test_every_policy_but_latest_is_carried_out() -> None:
    assert set(POLICIES) == set(ReconciliationPolicy) - {LATEST}


def test_the_index_gets_what_shows() -> None:
    under = policies(a="sum", b="union", c="append", d="first", e="count")
    given = [
        change(1, {"a": 0.1, "b": "x", "c": 1, "d": "old", "e": 1, "f": 1}, under),
        change(2, {"a": 0.2, "b": ["x", "y"], "c": 0.5, "d": "new", "e": 1, "f": 2}, under),
    ]
    rules = IndexRules(lambda path: path != "e", under)
    assert document("u:1", 1, stated(*given), rules).fields == {
        "a": 0.3, "b": ["x", "y"], "c": [1, 0.5], "d": "old", "f": 2,
    }  # fmt: skip


def test_the_index_gets_a_sum_that_no_float_can_hold_exactly_or_not_at_all() -> None:
    def summed(*numbers: Any) -> Any:
        under = policies(a="sum")
        state = stated(*(change(n, {"a": each}, under) for n, each in enumerate(numbers)))
        return document("u:1", 1, state, IndexRules(lambda _: True, under)).fields.get("a")

    assert summed(Decimal("1e400"), 1) == 10**400 + 1
    assert summed(Decimal("1e400"), 0.5) is None
    assert summed(Decimal("0.1000000000000000000000001"), 1) == 1.1
    assert summed(12345678901234567890123, 0.5, 0.5) == 12345678901234567890124


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_the_index_finds_a_sealed_set_by_its_tokens_whatever_came_first(order: tuple[int, ...]) -> None:
    """As the machine of law 1 found: else an index that is compared with the store differs from it."""
    under = policies(a="union")
    state = FragmentState()
    sealed_values = {1: "b25l.token1", 2: "dHdv.token2", 3: "dGhyZWU.token1"}
    for ordinal in order:
        sealed = sealed_values[ordinal]
        one = change(ordinal, {}, under)
        state.apply(one._replace(mutations={"a": Register(one.origin, Kind.SEALED, sealed)}))
    found = document("u:1", 1, state, IndexRules(lambda _: False, under)).fields["a"]
    assert found == ["token1", "token2"]


@pytest.mark.parametrize(
    "cells",
    [
        {"a": {"median": [None, [], []]}},
        {"a": {"max": [None, [], [[0, 1, "e", 9, 1]]]}},
        {"a": {"max": [None, [], [[7, 1, "e", 1, 1]]]}},
        {"a": {"max": [[9, 1, "e"], [], []]}},
        {"a": {"max": [None, []]}},
    ],
)
def test_damaged_cells_are_an_error_of_ours(cells: Any) -> None:
    from idgraph.model.errors import DamagedStateError

    body = canonical.encode([[], {}, [], {}, [[0, "s", "m", 1]], cells])
    with pytest.raises(DamagedStateError):
        FragmentState.decode(codec.framed(body, codec.WITH_CELLS))
