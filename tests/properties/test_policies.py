"""The laws of every policy, by itself and mixed: order, duplication and batching do not show, joining is a
semilattice, the state is bounded, the winner stays, and policies may change while events are in progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from merge.fragments import FragmentState
from merge.policies import POLICIES
from merge.resolution import shown
from tests import policies
from tests.lanes import examples
from tests.policies import (
    NAME,
    PATHS,
    SOURCES,
    assignments,
    changes,
    fold,
    profile,
    small_bounds,
    sources,
    split,
)

each_policy = pytest.mark.parametrize("policy", POLICIES)
some = settings(max_examples=examples(40, 8), deadline=None)


@pytest.fixture(
    autouse=True,
    params=[3, 1000],
    ids=["bound 3", "no bound"],
    scope="module",
)
def bounds(request: pytest.FixtureRequest) -> Iterator[None]:
    with small_bounds(request.param):
        yield


def under(policy: ReconciliationPolicy) -> dict[str, Reconciliation]:
    return dict.fromkeys(PATHS, Reconciliation(policy, ("t", "s")))


def events(policy: ReconciliationPolicy, size: int = 16) -> st.SearchStrategy[list[FragmentChange]]:
    return st.lists(changes(st.just(under(policy))), min_size=size // 3, max_size=size)


def disordered(data: st.DataObject, given: list[FragmentChange]) -> FragmentState:
    """The same events in any order, some again, split anyhow."""
    repeated = data.draw(st.lists(st.sampled_from(given), max_size=4)) if given else []
    again = data.draw(st.permutations(given + repeated))
    return fold(split(again, data.draw(st.lists(st.integers(0, len(again)), max_size=4))))


@each_policy
@some
@given(data=st.data())
def test_order_duplication_and_batching_do_not_show(
    policy: ReconciliationPolicy, data: st.DataObject
) -> None:
    given = data.draw(events(policy))
    once, other = fold([given]), disordered(data, given)
    assert other.encode() == once.encode()
    assert profile(other, under(policy)) == profile(once, under(policy))


@some
@given(data=st.data(), newest=assignments)
def test_nor_do_they_when_the_policies_change(
    data: st.DataObject, newest: Mapping[str, Reconciliation]
) -> None:
    catalogues = st.sampled_from(data.draw(st.lists(assignments, min_size=1, max_size=3)))
    given = data.draw(st.lists(changes(catalogues), max_size=16))
    once, other = fold([given]), disordered(data, given)
    assert other.encode() == once.encode()
    assert profile(other, newest) == profile(once, newest)


@each_policy
@some
@given(data=st.data())
def test_joining_is_a_semilattice(policy: ReconciliationPolicy, data: st.DataObject) -> None:
    one, two, three = (fold([data.draw(events(policy, 6))]) for _ in range(3))

    def joined(*states: FragmentState) -> bytes:
        whole = FragmentState()
        for each in states:
            whole.join(FragmentState.decode(each.encode()))
            whole.normalise()
        return whole.encode()

    two_and_three = FragmentState.decode(joined(two, three))
    assert joined(one, two) == joined(two, one)
    assert joined(one, one) == joined(one) == one.encode()
    assert joined(joined_first := FragmentState.decode(joined(one, two)), three) == joined(one, two_and_three)
    assert joined(joined_first, one) == joined(one, two)


@each_policy
@some
@given(data=st.data())
def test_joining_what_is_there_changes_nothing(policy: ReconciliationPolicy, data: st.DataObject) -> None:
    given = data.draw(events(policy))
    whole = fold([given])
    before = whole.encode()
    again = FragmentState.decode(before)
    assert not again.join(FragmentState.decode(before))
    for event in given:
        part = FragmentState()
        part.apply(event)
        whole.join(part)
        whole.normalise()
    assert whole.encode() == before


@each_policy
@some
@given(data=st.data())
def test_the_state_is_bounded(policy: ReconciliationPolicy, data: st.DataObject) -> None:
    state = fold([data.draw(events(policy, 25))])
    for cells in state.cells.values():
        for cell in cells.values():
            assert len(cell.entries) <= cell.policy.bound * len(SOURCES)
            assert len(cell.best) <= len(SOURCES)


def _newest(values: list[Register], bound: int) -> list[Register]:
    """The newest so many of each source, in the order of their origins."""
    of = {source: [each for each in values if each.stamp.source == source][-bound:] for source in SOURCES}
    return sorted(each for some in of.values() for each in some)


def _of_each_event(ordered: list[Register]) -> list[Register]:
    """The latest of each event: under another priority it is the same event."""
    return sorted({each.stamp[1:]: each for each in ordered}.values())


def _compared(ordered: list[Register], bound: int) -> list[Register]:
    """What an extreme is of: of a source with fewer events than the bound the latest of each, otherwise all."""
    of: dict[str, list[Register]] = {source: [] for source in SOURCES}
    for each in _of_each_event(ordered):
        of[each.stamp.source].append(each)
    full = {source for source, some in of.items() if len(some) >= bound}
    return [
        *(each for each in ordered if each.stamp.source in full),
        *(each for source, some in of.items() if source not in full for each in some),
    ]


def _expected(policy: ReconciliationPolicy, values: list[Register]) -> object:
    """The value that a policy shows if nothing is taken away, computed in another way."""
    ordered, bound = sorted(values, key=lambda each: each.origin), POLICIES[policy].bound
    if policy is ReconciliationPolicy.FIRST:
        return min(ordered, key=lambda each: (-each.stamp.priority, each.stamp)).value
    if policy is ReconciliationPolicy.MAX:
        return max(each.value for each in _compared(ordered, bound))
    if policy is ReconciliationPolicy.MIN:
        return min(each.value for each in _compared(ordered, bound))
    if policy is ReconciliationPolicy.SOURCE_PRIORITY:
        return max(ordered, key=lambda each: (each.stamp.source, each.stamp)).value
    if policy is ReconciliationPolicy.UNION:
        last = {(each.stamp.source, each.value): each for each in ordered}
        return sorted({each.value for each in _newest(sorted(last.values()), bound)})
    newest = [each.value for each in _newest(_of_each_event(ordered), bound)]
    return newest if policy is ReconciliationPolicy.APPEND else sum(newest, 0)


@each_policy
@some
@given(data=st.data())
def test_the_winner_is_never_dropped(policy: ReconciliationPolicy, data: st.DataObject) -> None:
    number = st.just(1) if policy is ReconciliationPolicy.COUNT else st.integers(-3, 3)
    stamps = data.draw(st.lists(policies.stamps, min_size=1, max_size=14, unique=True))
    values = [Register(Origin(stamp, SpecRef("m", 1)), Kind.PLAIN, data.draw(number)) for stamp in stamps]
    given = [FragmentChange("u:1", each.origin, {"d": each}, (NAME,), None, under(policy)) for each in values]
    (found,) = shown(disordered(data, given), under(policy))
    assert found.value([part.value for part in found.parts]) == _expected(policy, values)


extremes = st.sampled_from([ReconciliationPolicy.MAX, ReconciliationPolicy.MIN, ReconciliationPolicy.FIRST])
removals = st.lists(
    st.tuples(st.sampled_from([None, "", "d"]), st.integers(0, 30), st.sampled_from(SOURCES)), max_size=3
)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), policy=extremes, taken=removals)
def test_a_winner_that_nothing_took_away_shows(
    data: st.DataObject, policy: ReconciliationPolicy, taken: list[tuple[str | None, int, str]]
) -> None:
    """However many values came behind it, and whatever older nulls and snapshot events there are."""
    numbers = data.draw(st.lists(st.integers(-9, 9), min_size=1, max_size=12))
    values = [
        Register(Origin(Stamp(0, 2 * n, data.draw(sources), f"e{n}"), SpecRef("m", 1)), Kind.PLAIN, number)
        for n, number in enumerate(numbers)
    ]
    given = [FragmentChange("u:1", each.origin, {"d": each}, (NAME,), None, under(policy)) for each in values]
    for scope, ordinal, source in taken:
        origin = Origin(Stamp(0, 2 * ordinal + 1, source, "removal"), SpecRef("m", 1))
        null = {} if scope is not None else {"d": Register(origin, Kind.DELETED, None)}
        given.append(FragmentChange("u:1", origin, null, (NAME,), scope, under(policy)))
    best = {
        ReconciliationPolicy.MAX: lambda each: (each.value, each.origin),
        ReconciliationPolicy.MIN: lambda each: (-each.value, each.origin),
        ReconciliationPolicy.FIRST: lambda each: -each.stamp.ordinal,
    }[policy]
    winner = max(values, key=best)
    behind = [
        ordinal
        for scope, ordinal, source in taken
        if scope is None or source == winner.stamp.source
        if 2 * ordinal + 1 > winner.stamp.ordinal
    ]
    found = list(shown(disordered(data, given), under(policy)))
    if not behind:
        ((_, (part,), _, _),) = found
        assert part.value == winner.value
    remaining = [
        each
        for each in values
        if not any(
            2 * ordinal + 1 > each.stamp.ordinal and (scope is None or source == each.stamp.source)
            for scope, ordinal, source in taken
        )
    ]
    for each in found:
        if each.is_complete and each.policy is policy:
            assert each.parts[0].value == max(remaining, key=best).value


@each_policy
@some
@given(data=st.data())
def test_what_shows_is_a_tree_of_values_under_any_policy(
    policy: ReconciliationPolicy, data: st.DataObject
) -> None:
    state = fold([data.draw(st.lists(changes(), max_size=10))])
    found = [each.path for each in shown(state, under(policy))]
    assert len(found) == len(set(found))
    assert not {"a", "a.b"} <= set(found)
