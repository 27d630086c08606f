"""Persons are the same whether native code says how a fragment's identifiers are linked or all its evidence is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from idgraph import native
from idgraph.model.fragments import FragmentChange, Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import StoredFragment
from merge.fragments import FragmentState
from merge.identity.components import Member, resolved
from merge.identity.evidence import Pair
from merge.identity.resolve import Decision, Pin
from merge.identity.rules import Rules
from tests.lanes import examples
from tests.merge.identity.test_resolve import RULES
from tests.properties.references import both

pytestmark = pytest.mark.skipif(native.built_states is None, reason=f"native code is {native.state}")

NAMES = st.builds(
    Identifier,
    st.sampled_from(["user", "email", "device", "cart"]),
    st.sampled_from(["1", "2", "a|b", "%7C", "ü"]),
)
ORIGINS = st.builds(
    Origin,
    st.builds(
        Stamp,
        st.sampled_from([0, 0, 0, 0, 1]),
        st.integers(1, 5).map(lambda day: day * 86_400_000),
        st.sampled_from(["web", "crm"]),
        st.integers(1, 9).map(str),
    ),
    st.just(SpecRef("spec", 1)),
)
SHOWN = st.tuples(
    ORIGINS,
    st.lists(NAMES, min_size=1, max_size=4, unique=True),
    st.sampled_from(["", "", "", "", "", "", "0.5;*", ";device+user"]),
    st.sampled_from([None, None, None, None, None, None, None, "", "1"]),
)


def member(own: Identifier, shown: list[Any]) -> Member:
    state = FragmentState()
    for origin, names, options, retracts in shown:
        change = FragmentChange(str(own), origin, {}, (own, *names), evidence=options, retracts=retracts)
        state.apply(change)
    state.normalise()
    data = state.encode()
    return Member(StoredFragment(str(own), 1, data), FragmentState.checked(data))


@settings(max_examples=examples(500), deadline=None)
@given(
    RULES,
    st.dictionaries(NAMES, st.lists(SHOWN, min_size=1, max_size=4), min_size=1, max_size=5),
    st.sets(NAMES, max_size=1),
    st.lists(st.tuples(NAMES, NAMES), max_size=1),
)
def test_persons(rules: Any, fragments: Any, hubs: Any, pinned: Any) -> None:
    ready = Rules(IdentityRules.model_validate(rules))
    pins = {min(pair): [Pin(Pair.of(*pair), Decision.NEVER, 1)] for pair in pinned if pair[0] != pair[1]}

    def work() -> Any:
        members = [member(own, shown) for own, shown in fragments.items()]
        component = resolved(members, ready, pins, hubs)
        persons = [
            (each.id, [one.stored.id for one in each.members], each.identifiers) for each in component.persons
        ]
        return persons, component.violations, component.accepted()

    natively, plainly = both(work)
    assert natively == plainly
    plain = [member(own, shown).state.named(str(own)) for own, shown in fragments.items()]
    event("quickly" if all(each is not None and each[1] is not None for each in plain) else "at length")
