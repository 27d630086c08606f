"""The values that a record holds, each with the keys it stands under, whether the record is JSON or not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from idgraph.model import canonical

_BETWEEN_VALUES = re.compile(r'((?:["\s,;:{}\[\]|&=<>()]|\\[nrt"])+)')
_NOT_A_LETTER = re.compile(r"[\W_]+")

Places = tuple[str, str]
"""The key that a value stands under and the key around it; empty where there is none."""


def values(payload: bytes) -> dict[str, set[Places]]:
    """Every value and every key of a record as text, with where it stands. What is not JSON is taken apart
    at everything that separates values there."""
    try:
        found = _leaves(canonical.decode(payload))
    except canonical.MalformedJSON:
        found = _pieces(payload.decode(errors="replace"))
    places: dict[str, set[Places]] = defaultdict(set)
    for text, place in found:
        places[text].add(place)
    return places


def names(place: Places, kind: str) -> bool:
    """Whether a value stands under a key that names a type of identifiers: `user_id` is named by `userId`,
    by `user`, and by `id` within `user`."""
    key, around = place
    word = _word(kind)
    wanted = {word, word.removesuffix("id") or word, word.removesuffix("id") + "id"}
    return _word(key) in wanted or (_word(key) == "id" and _word(around + key) in wanted)


def _word(text: str) -> str:
    return _NOT_A_LETTER.sub("", text).lower()


def _leaves(value: Any) -> Iterator[tuple[str, Places]]:
    # Not by recursion: a record may be nested as deeply as its parser lets it.
    waiting: list[tuple[Any, Places]] = [(value, ("", ""))]
    while waiting:
        each, place = waiting.pop()
        if isinstance(each, dict):
            waiting += [(key, place) for key in each]
            waiting += [(below, (key, place[0])) for key, below in each.items()]
        elif isinstance(each, list):
            waiting += [(element, place) for element in each]
        elif each is not None and not isinstance(each, bool):
            yield str(each), place


def _pieces(text: str) -> Iterator[tuple[str, Places]]:
    before, key, around = "", "", ""
    for number, piece in enumerate(_BETWEEN_VALUES.split(text)):
        if number % 2:
            is_below = not {",", ";", "&"} & set(piece) and bool({":", "="} & set(piece))
            key, around = (before, key) if is_below else ("", "")
        else:
            yield piece, (key, around)
            before = piece
    for piece in text.split('"'):
        yield piece, ("", "")
