"""Values that a mapped output may hold, and some that none should: for whatever must not fall over one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st


class OddText(str):
    __slots__ = ()


class OddInteger(int):
    pass


class OddDict(dict[str, Any]):
    pass


class OddList(list[Any]):
    pass


TEXTS = (
    *("", "a", "zoe", "Zoë", "日本", "\x00", "\x1f", "\x7f", "\x80", '"', "\\", "a/b", "\ud800", "x\udfff"),
    *("a.b@example.com", "4111111111111111", "192.0.2.7", "2001:db8::1", "just words: a_b-c./d", "w" * 23),
    *("w" * 24, "w" * 65, "123456", "12345", "+44 20 7946 0958", "DE89370400440532013000", "\U0001f600"),
)
INTEGERS = (
    *(0, 1, -1, 2**53, 2**53 - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**70, -(2**70)),
    *(10**13 - 1, 10**13, 4111111111111111, 10**16),
)
FLOATS = (0.0, -0.0, 1.0, 0.1, 2.0**53, 1e16, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"))

texts = st.sampled_from(TEXTS) | st.text(max_size=8) | st.text(st.characters(), max_size=4)
long_integers = st.sampled_from([12_999, 13_000, 13_001, 14_000]).map(lambda bits: 1 << bits)
integers = st.sampled_from(INTEGERS) | st.integers() | long_integers
decimals = st.sampled_from([Decimal("0.10"), Decimal("1e7000"), Decimal("NaN"), Decimal(1), Decimal("-0")])
scalars = st.one_of(
    st.none(), st.booleans(), texts, integers, st.sampled_from(FLOATS) | st.floats(), decimals
)
strangers = st.one_of(
    texts.map(OddText), integers.map(OddInteger), st.just(OddList([1])), st.just(b"x"), st.just((1,))
)
arrays = st.lists(scalars | st.lists(scalars, max_size=2), max_size=3)
leaves = st.one_of(scalars, scalars, scalars, arrays, strangers)
fine_texts = st.sampled_from([text for text in TEXTS if text.isprintable()]) | st.text(
    'aZ09 ü"\\\x7f\n', max_size=30
)
fine_numbers = st.sampled_from(INTEGERS) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
fine_scalars = fine_texts | fine_numbers | st.booleans()
fine_leaves = fine_scalars | st.none() | st.lists(fine_scalars, max_size=3)
"""What can be stored: an error would hide what else is not equal."""
keys = st.sampled_from(
    ["a", "b", "c", "d", "e", "a.b", "\\", "", "_event", "email", "ü", "\ud800", "k" * 1100]
)


def nested(depth: int) -> dict[str, Any]:
    """Objects inside one another."""
    tree: dict[str, Any] = {"a": 1}
    for _ in range(depth):
        tree = {"a": tree, "b": 2}
    return tree


trees = st.recursive(
    st.dictionaries(keys, leaves, max_size=5),
    lambda below: st.dictionaries(keys, leaves | below | below.map(OddDict), max_size=4),
    max_leaves=12,
) | st.sampled_from([10, 63, 64, 65, 200]).map(nested)
fine_trees = st.recursive(
    st.dictionaries(st.sampled_from("abcde"), fine_leaves, max_size=5),
    lambda below: st.dictionaries(
        st.sampled_from(["a", "b", "c", "d", "_event"]), fine_leaves | below, max_size=4
    ),
    max_leaves=12,
)
