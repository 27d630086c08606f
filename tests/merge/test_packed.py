"""Large cells as blocks: the same entries as kept one by one, in bytes that only the entries decide, and few of them
read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.errors import DamagedStateError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp
from merge import cell_codec, codec, packed
from merge.cells import Cell, Removals
from merge.fragments import FragmentState
from merge.policies import POLICIES
from tests.lanes import examples
from tests.policies import origins, small_blocks, small_bounds

NAME = Identifier("u", "1")
SUM = ReconciliationPolicy.SUM
PATHS = {"a": Reconciliation(SUM, ())}

sealed = st.sampled_from(["c2VhbGVk.dG9rZW4", "b3RoZXI.dG9rZW4", "bm9uZQ"])
entries = st.one_of(
    st.builds(
        Register, origins, st.just(Kind.PLAIN), st.integers(0, 9) | st.sampled_from(["x", [1, [2]], {"k": 1}])
    ),
    st.builds(Register, origins, st.just(Kind.SEALED), sealed),
)
removals = st.builds(
    Removals,
    st.none() | origins,
    st.dictionaries(st.sampled_from(["s", "t"]), origins.map(lambda origin: origin.stamp)),
)
steps = st.lists(st.one_of(entries, removals, st.just("bytes")), max_size=40)


@pytest.mark.parametrize("policy", [SUM, ReconciliationPolicy.UNION])
@settings(max_examples=examples(300), deadline=None)
@given(steps=steps, bound=st.integers(2, 12))
def test_whatever_is_done_blocks_hold_what_a_cell_without_them_holds(
    policy: ReconciliationPolicy, steps: list[Register | Removals | str], bound: int
) -> None:
    with small_bounds(bound), small_blocks():
        blocks, plain = Cell(POLICIES[policy]), Cell(POLICIES[policy])
        for step in steps:
            if isinstance(step, Removals):
                assert blocks.normalise(step) == plain.normalise(step)
            elif isinstance(step, Register):
                one = Cell(POLICIES[policy])
                one.add(step)
                assert blocks.join(one) == plain.join(one)
            else:
                blocks = again(policy, blocks)
                assert encoded(policy, blocks) == encoded(policy, copied(plain))
            assert blocks.size == plain.size
            assert blocks.keeps_anything == plain.keeps_anything
        assert blocks.entries == plain.entries


def encoded(policy: ReconciliationPolicy, cell: Cell) -> tuple[bytes, bytes]:
    json, blocks = cell_codec.encode({"a": {policy: cell}})
    return json, b"".join(blocks)


def again(policy: ReconciliationPolicy, cell: Cell) -> Cell:
    """Out of its bytes."""
    state = FragmentState()
    if cell.keeps_anything:
        state.cells["a"] = {policy: cell}
    return FragmentState.decode(state.encode()).cell("a", policy)


def copied(cell: Cell) -> Cell:
    made = Cell(cell.policy)
    made.floor = cell.floor
    made.keep(cell.entries.values(), ())
    return made


def change(number: int, value: float = 1) -> FragmentState:
    origin = Origin(Stamp(0, number, "shop", f"e{number}"), SpecRef("spec", 1))
    state = FragmentState()
    written = {"a": Register(origin, Kind.PLAIN, value)}
    state.apply(FragmentChange("u:1", origin, written, (NAME,), None, PATHS))
    return state


def hot(count: int) -> bytes:
    state = FragmentState()
    for number in range(count):
        state.join(change(number))
    state.normalise()
    return state.encode()


@pytest.mark.parametrize("number", [0, 5000, 9999, 10_000])
def test_joining_one_event_to_ten_thousand_reads_a_few_of_them(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, read = hot(10_000), list[int]()
    decode = packed._decode

    def counted(source: str, block: packed.Bytes) -> list[Register]:
        found = decode(source, block)
        read.append(len(found))
        return found

    monkeypatch.setattr(packed, "_decode", counted)
    state = FragmentState.decode(data)
    assert state.join(change(number, 2))
    state.normalise()
    assert state.encode()[:1] == codec.WITH_BLOCKS
    assert sum(read) < 1000


def test_an_event_that_comes_again_changes_no_byte() -> None:
    data = hot(1000)
    state = FragmentState.decode(data)
    assert not state.join(change(500))
    state.normalise()
    assert state.encode() == data


def test_a_state_of_before_there_were_blocks_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(cell_codec, "LARGE", 10**9)
        old = hot(1000)
    assert old[:1] == codec.WITH_CELLS
    state = FragmentState.decode(old)
    state.encoded = None
    state.normalise()
    assert state.encode() == hot(1000)
    assert not FragmentState.decode(old).join(FragmentState.decode(hot(1000)))


@pytest.mark.parametrize("cut", [1, 20, 3000])
def test_what_is_cut_short_or_flipped_is_damaged(cut: int) -> None:
    data = hot(1000)
    with pytest.raises(DamagedStateError):
        FragmentState.decode(data[:-cut])
    with pytest.raises(DamagedStateError):
        FragmentState.decode(data[:-cut] + bytes([data[-cut] ^ 1]) + data[len(data) - cut + 1 :])
    body = codec.body(data)[:-cut]
    with pytest.raises(DamagedStateError):
        FragmentState.decode(codec.framed(body, codec.WITH_BLOCKS))
    with pytest.raises(DamagedStateError):
        FragmentState.decode(codec.framed(codec.body(data) + b" " * cut, codec.WITH_BLOCKS))


def test_a_damaged_block_is_reported_when_it_is_read() -> None:
    data = hot(1000)
    body = codec.body(data)
    state = FragmentState.decode(codec.framed(body[:-9] + b"[" * 9, codec.WITH_BLOCKS))
    with pytest.raises(DamagedStateError):
        list(state.stored())
