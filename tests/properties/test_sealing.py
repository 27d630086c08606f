"""Law 1 and law 3 for sealing: the same in gives the same out, and nothing but the same place opens it."""

from __future__ import annotations

import base64
import hashlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.attributes import DataType
from idgraph.model.classification import SealedValue
from idgraph.model.errors import SealError
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import ORDINAL_MAX, ORDINAL_MIN, Stamp
from tests.support.memory.key_provider import FixedProvider
from tests.support.siv_reference import siv_encrypt
from transforms.privacy.blind_index import BlindIndex, normalise
from transforms.privacy.sealing import SealingKey

KEY = bytes(range(64))
STAMP = Stamp(0, 1, "s", "e")
text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = (
    st.integers()
    | st.integers(2**63, 2**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
).map(lambda value: canonical.decode(canonical.encode(value)))
"""Values as events bring them: a Decimal only where a float would lose digits."""

stamps = st.builds(Stamp, st.integers(), st.integers(ORDINAL_MIN, ORDINAL_MAX), text, text)
tokens = st.none() | st.text("abcXYZ019-_", min_size=1)
places = st.tuples(text, stamps)


INDEX = BlindIndex(FixedProvider())


def same(left: Any, right: Any) -> bool:
    """Equal in type as well, all the way down, with the sign of a zero."""
    return type(left) is type(right) and repr(left) == repr(right)


@given(values, text, places, tokens)
def test_any_json_value_comes_back_and_sealing_again_gives_the_same(
    value: Any, fragment: str, place: tuple[str, Stamp], token: str | None
) -> None:
    sealed = SealingKey(KEY, fragment).seal(value, *place, token)
    assert SealingKey(KEY, fragment).seal(value, *place, token) == sealed
    opened = SealingKey(KEY, fragment).open(sealed, *place)
    assert opened == value
    assert canonical.encode(opened) == canonical.encode(value)
    if not isinstance(value, dict | list):
        assert same(opened, value)


@given(values, text, places, tokens)
def test_the_bytes_are_those_of_the_reference(
    value: Any, fragment: str, place: tuple[str, Stamp], token: str | None
) -> None:
    """The format as `SealingKey` documents it, by an AES-SIV of our own."""
    path, stamp = place
    header = b"\x02" + hashlib.sha256(b"idgraph data-key version\0" + KEY).digest()[:4]
    bound = [path, stamp.source, stamp.event_id, stamp.priority, stamp.ordinal, token]
    plain = canonical.encode(value)
    plain += b" " * (-len(plain) % 16)
    associated = header + canonical.encode(fragment) + canonical.encode(bound)
    expected = base64.b64encode(header + siv_encrypt(KEY, plain, [associated])).decode()
    sealed = SealedValue.parse(SealingKey(KEY, fragment).seal(value, path, stamp, token))
    assert sealed == SealedValue(expected, token)


@given(values, st.tuples(text, places, tokens), st.tuples(text, places, tokens))
def test_any_other_place_is_refused(
    value: Any,
    here: tuple[str, tuple[str, Stamp], str | None],
    there: tuple[str, tuple[str, Stamp], str | None],
) -> None:
    assume(here != there)
    fragment, place, token = here
    other_fragment, other_place, other_token = there
    ciphertext = SealedValue.parse(SealingKey(KEY, fragment).seal(value, *place, token)).ciphertext
    with pytest.raises(SealError):
        SealingKey(KEY, other_fragment).open(str(SealedValue(ciphertext, other_token)), *other_place)


@given(values, places, st.data())
def test_any_altered_byte_is_refused(value: Any, place: tuple[str, Stamp], data: st.DataObject) -> None:
    key = SealingKey(KEY, "f")
    sealed = bytearray(base64.b64decode(key.seal(value, *place)))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SealError):
        key.open(base64.b64encode(sealed).decode(), *place)


@given(values, places, st.data())
def test_any_altered_character_is_refused(value: Any, place: tuple[str, Stamp], data: st.DataObject) -> None:
    key = SealingKey(KEY, "f")
    sealed = key.seal(value, *place)
    position = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(st.characters().filter(lambda character: character != sealed[position]))
    with pytest.raises(SealError):
        key.open(sealed[:position] + other + sealed[position + 1 :], *place)


@given(values, places, st.data())
def test_any_cut_is_refused(value: Any, place: tuple[str, Stamp], data: st.DataObject) -> None:
    key = SealingKey(KEY, "f")
    sealed = key.seal(value, *place)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(sealed))] * 2)))
    assume(start < stop)
    with pytest.raises(SealError):
        key.open(sealed[:start] + sealed[stop:], *place)


@given(values, st.binary(min_size=64, max_size=64))
def test_any_other_key_is_refused(value: Any, other: bytes) -> None:
    assume(other != KEY)
    sealed = SealingKey(KEY, "f").seal(value, "p", STAMP)
    with pytest.raises(SealError):
        SealingKey(other, "f").open(sealed, "p", STAMP)


@given(st.text())
def test_any_text_is_opened_or_refused(anything: str) -> None:
    with pytest.raises(SealError):
        SealingKey(KEY, "f").open(anything, "p", STAMP)


@given(st.text())
def test_text_is_normalised_once_and_for_all(value: str) -> None:
    once = normalise(value, DataType.STRING)
    again = normalise(once[1:].decode("utf-8", "surrogatepass"), DataType.STRING)
    assert again == once


@given(numbers, numbers)
def test_numbers_share_a_token_exactly_when_they_are_equal(
    left: int | float | Decimal, right: int | float | Decimal
) -> None:
    def said(number: int | float | Decimal) -> Decimal:
        return Decimal(repr(number) if isinstance(number, float) else number)

    tokens = [INDEX.token("a", number, DataType.NUMBER) for number in (left, right)]
    assert (tokens[0] == tokens[1]) is (said(left) == said(right))


@given(
    st.tuples(st.text(min_size=1), st.text(min_size=1)), st.tuples(st.text(min_size=1), st.text(min_size=1))
)
def test_identifiers_stay_who_they_are(left: tuple[str, str], right: tuple[str, str]) -> None:
    hashed = [INDEX.identifier(Identifier(*identifier)) for identifier in (left, right)]
    assert (hashed[0] == hashed[1]) is (left == right)
    assert [INDEX.identifier(identifier) for identifier in hashed] == hashed
