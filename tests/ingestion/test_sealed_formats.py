"""Values that were sealed by the first format, which bound neither order nor token; and what the present one refuses."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from idgraph.model import canonical
from idgraph.model.classification import SealedValue
from idgraph.model.fragments import Kind, Register
from idgraph.model.stamps import ORDINAL_MAX, Stamp
from idgraph.model.store import FragmentWrite
from merge.fragments import FragmentState
from profile_service.reader import UNREADABLE
from tests.ingestion.stored_orders import from_the_start, states, stored_orders
from tests.retail import Pipeline, attribute, attributes, order, snapshot
from tests.sealing import previewed, sealed
from transforms.privacy.sealing import SealingKey, is_current

EMAIL = "identity.email"


def seal_first(self: SealingKey, value: Any, path: str, stamp: Stamp, token: str | None = None) -> str:
    """As `SealingKey.seal` did before."""
    plain = canonical.encode(value)
    plain += b" " * (-len(plain) % 16)
    place = self._place(path, stamp, token, b"\x01")
    body = b"\x01" + self._version + self._cipher().encrypt(plain, [place])
    return str(SealedValue(base64.b64encode(body).decode(), token))


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Orders of two persons, sealed by the first format."""
    known = [attribute(EMAIL, "string", encryption="searchable"), *attributes()]
    distinct = {each.path: each for each in reversed(known)}
    after = snapshot(1, declared=list(distinct.values()))
    monkeypatch.setattr(SealingKey, "seal", seal_first)
    found = stored_orders(tmp_path, after, after)
    monkeypatch.undo()
    return found


def registers(pipeline: Pipeline) -> list[Register]:
    return [
        each
        for state in states(pipeline).values()
        for _, each in FragmentState.decode(state).stored()
        if each.kind is Kind.SEALED
    ]


def test_the_first_format_is_read_and_sealed_again(pipeline: Pipeline) -> None:
    assert registers(pipeline)
    assert not any(is_current(each.value) for each in registers(pipeline))
    revealed, reported = pipeline.export(reveal=True), previewed(pipeline)
    done = sealed(pipeline)
    assert (done.failed, done.fragments) == (0, 2)
    assert (reported.values, reported.fragments) == (done.values, done.fragments)
    assert sum(done.values.values()) == len(registers(pipeline))
    assert all(is_current(each.value) for each in registers(pipeline))
    assert states(pipeline) == from_the_start(pipeline, pipeline.snapshot)
    assert pipeline.export(reveal=True) == revealed
    assert sealed(pipeline).fragments == 0


def test_the_same_events_again_seal_anew(pipeline: Pipeline) -> None:
    pipeline.process([order(1), order(2, 2)])
    assert states(pipeline) == from_the_start(pipeline, pipeline.snapshot)


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
def test_an_old_value_is_not_pinned_by_another_stamp(pipeline: Pipeline, stamp: dict[str, int]) -> None:
    sealed(pipeline)
    name = pinned(pipeline, **stamp)
    assert pipeline.profile(name)["identity"]["email"] == UNREADABLE


def test_the_token_of_another_person_is_refused(pipeline: Pipeline) -> None:
    sealed(pipeline)
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
