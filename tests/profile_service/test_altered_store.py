"""A sealed value is bound to its order and its token: in a store that somebody altered it cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idgraph.model.classification import SealedValue
from idgraph.model.stamps import ORDINAL_MAX
from idgraph.model.store import FragmentWrite
from merge.fragments import FragmentState
from profile_service.reader import UNREADABLE
from tests.retail import Pipeline, attribute, attributes, snapshot
from tests.support.stored_orders import stored_orders

EMAIL = "identity.email"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Orders of two persons."""
    known = [attribute(EMAIL, "string", encryption="searchable"), *attributes()]
    distinct = {each.path: each for each in reversed(known)}
    after = snapshot(1, declared=list(distinct.values()))
    return stored_orders(tmp_path, after, after)


def pinned(pipeline: Pipeline, **stamp: Any) -> str:
    """Let the e-mail address of one profile, as it is stored, have another stamp."""
    stored, *_ = pipeline.store.scan()
    state = FragmentState.decode(stored.state)
    register = state.registers[EMAIL]
    origin = register.origin._replace(stamp=register.stamp._replace(**stamp))
    state.registers[EMAIL] = register._replace(origin=origin)
    write(pipeline, stored.id, stored.version, state)
    return stored.id


def write(pipeline: Pipeline, name: str, version: int, state: FragmentState) -> None:
    state.encoded = None
    assert not pipeline.store.write([FragmentWrite(name, version, state.encode(), frozenset())])


@pytest.mark.parametrize("stamp", [{"priority": 1000}, {"ordinal": ORDINAL_MAX}])
def test_a_value_is_not_pinned_by_another_stamp(pipeline: Pipeline, stamp: dict[str, int]) -> None:
    name = pinned(pipeline, **stamp)
    assert pipeline.profile(name)["identity"]["email"] == UNREADABLE


def test_the_token_of_another_person_is_refused(pipeline: Pipeline) -> None:
    one, other = pipeline.store.scan()
    states_read = [FragmentState.decode(each.state) for each in (one, other)]
    mine, its = (each.registers[EMAIL] for each in states_read)
    token = SealedValue.parse(its.value).token
    assert token is not None
    swapped = SealedValue.parse(mine.value)._replace(token=token)
    states_read[0].registers[EMAIL] = mine._replace(value=str(swapped))
    write(pipeline, one.id, one.version, states_read[0])
    assert pipeline.profile(one.id)["identity"]["email"] == UNREADABLE
    assert pipeline.profile(other.id)["identity"]["email"] != UNREADABLE
