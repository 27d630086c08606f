"""The cost of a search, before it runs: it is bounded per search, and charged to the caller's rate.

The unit is one value or word that is looked up. `docs/profiles.md` has the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from idgraph.model.durations import ANNIVERSARY_YEARS
from idgraph.model.errors import QueryCostError
from idgraph.model.queries import (
    UNSPACED,
    All,
    Anniversary,
    AnyOf,
    Condition,
    Exists,
    FullText,
    Not,
    Prefix,
    Query,
    Range,
    Term,
)

MOST_COST = 5000
"""The largest cost of one search."""
REQUEST_COST = 25
"""So much of it counts as one request of the caller's rate."""

LOOKED_UP = 1
SEEN_ALL = 5
BEGINNING = 5
COMPARED = 100
MISTYPED = {1: 10, 2: 50}
SORTED = 50
"""The cost of an order, and of each attribute whose values are counted."""

_WORDS = re.compile(r"[^\W_]+")


def require_affordable(query: Query, places: int = 1, times: int = 1, besides: int = 0) -> int:
    """The cost of a search that runs `times`, with what it costs `besides`. `places` are the attributes in which words
    without a path are looked for. Raises QueryCostError, which says what costs most."""
    parts = _cost_by_kind(query, places)
    total = times * parts.total() + besides
    if total > MOST_COST:
        parts["sorting, counting and reading"] = besides // times
        most, cost = parts.most_common(1)[0]
        raise QueryCostError(
            f"the search costs {total:,}, and one search costs at most {MOST_COST:,}; {times * cost:,} of it are for {most}"
        )
    return total


def cost_of(query: Query) -> int:
    """The cost of a search that was checked when it was saved."""
    return _cost_by_kind(query, 1).total()


def _cost_by_kind(query: Query, places: int) -> Counter[str]:
    parts: Counter[str] = Counter()
    for condition in query.clauses:
        for name, cost in _parts(condition, places):
            parts[name] += cost
    return parts


def _parts(condition: Condition, places: int) -> Iterator[tuple[str, int]]:
    """The cost of each part of a condition, by its name."""
    match condition:
        case All(conditions) | AnyOf(conditions):
            # Also one without any part is compiled.
            yield "joined conditions", LOOKED_UP
            for each in conditions:
                yield from _parts(each, places)
        case Not(negated):
            yield "NOT", SEEN_ALL
            yield from _parts(negated, places)
        case FullText(text, path, is_prefix, edits):
            found = len(_WORDS.findall(text)) + sum(map(len, UNSPACED.findall(text)))
            each_word = places if path is None else 1
            if is_prefix and found:
                found -= 1
                yield "beginnings of words", BEGINNING * each_word
            if edits:
                yield "mistyped words (`edits`)", MISTYPED[edits] * found * each_word
            else:
                yield "words", LOOKED_UP * max(1, found) * each_word
        case Anniversary():
            yield "anniversaries", LOOKED_UP * ANNIVERSARY_YEARS
        case Term():
            yield "values", LOOKED_UP
        case Exists():
            yield "values that exist (`*`)", SEEN_ALL
        case Prefix() | Range():
            yield "ranges and beginnings of values", COMPARED
