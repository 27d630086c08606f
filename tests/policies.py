"""Events under every policy, for property tests: few names and stamps, so that they collide often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp
from merge.fragments import FragmentState
from merge.policies import POLICIES
from merge.resolution import shown

PATHS = ("a", "a.b", "d")
SOURCES = ("s", "t")
NAME = Identifier("u", "1")

sources = st.sampled_from(["s", "s", "s", "t"])
stamps = st.builds(Stamp, st.integers(0, 1), st.integers(0, 9), sources, st.sampled_from(["1", "2"]))
specs = st.builds(SpecRef, st.just("m"), st.integers(1, 2))
origins = st.builds(Origin, stamps, specs)
numbers = st.sampled_from([0, 1, 1.0, 0.1, 0.2, -3, 2**70, Decimal("0.10000000000000000000000001"), 9e300])
values = numbers | st.sampled_from([True, "", "x", "10", "9", [], [1, None, "x"], [[1], {"k": 2}], ["x"]])
sealed_values = st.sampled_from(["c2VhbGVk.dG9rZW4", "b3RoZXI.dG9rZW4", "bm9uZQ"])
written = st.one_of(
    st.tuples(st.just(Kind.DELETED), st.none()),
    st.tuples(st.just(Kind.PLAIN), values),
    st.tuples(st.just(Kind.PLAIN), values),
    st.tuples(st.just(Kind.SEALED), sealed_values),
)

policies = st.sampled_from([*POLICIES, ReconciliationPolicy.LATEST]).map(
    lambda policy: Reconciliation(policy, ("t", "s"))
)
assignments = st.dictionaries(st.sampled_from(PATHS), policies)
"""What a snapshot says of each path; some versions of a catalogue."""


@st.composite
def changes(
    draw: st.DrawFn, known: st.SearchStrategy[Mapping[str, Reconciliation]] = assignments, scoped: bool = True
) -> FragmentChange:
    """What one event asks under some snapshot."""
    origin = draw(origins)
    mutations = {
        path: Register(origin, *draw(written))
        # One event never writes a leaf and something below it.
        for path in draw(st.sampled_from([("d",), ("d",), ("d", "a"), ("d", "a.b"), ("a",), ("a.b",), ()]))
    }
    scope = draw(st.sampled_from([None, None, None, None, None, "", "a"])) if scoped else None
    stated = {
        path: each for path, each in draw(known).items() if each.policy is not ReconciliationPolicy.LATEST
    }
    return FragmentChange("u:1", origin, mutations, (NAME,), scope, stated)


@contextmanager
def small_bounds(bound: int = 3) -> Iterator[None]:
    """Every policy with a bound that few events reach; `source_priority` keeps its own."""
    usual = dict(POLICIES)
    try:
        for name, policy in usual.items():
            if policy.bound > 1:
                POLICIES[name] = type(policy)(bound)
        yield
    finally:
        POLICIES.update(usual)


def fold(batches: Sequence[Sequence[FragmentChange]]) -> FragmentState:
    """Each batch combined by itself as a map task does, passed through bytes, joined as a commit does."""
    whole = FragmentState()
    for batch in batches:
        part = FragmentState()
        for change in batch:
            part.apply(change)
        part.normalise()
        whole.join(FragmentState.decode(part.encode()))
        whole.normalise()
        whole = FragmentState.decode(whole.encode())
    return whole


def profile(state: FragmentState, under: Mapping[str, Reconciliation]) -> bytes:
    """What shows, in bytes: values, evidence and whether it is all."""
    return canonical.encode(
        [
            (each.path, each.value([part.value for part in each.parts]), each.newest, each.is_complete)
            for each in sorted(shown(state, under))
        ]
    )


def split(events: Sequence[Any], cuts: Sequence[int]) -> list[Sequence[Any]]:
    places = sorted(min(cut, len(events)) for cut in cuts)
    return [events[start:end] for start, end in zip([0, *places], [*places, len(events)], strict=True)]
