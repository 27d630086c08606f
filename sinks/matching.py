"""The meaning of every clause, in the plainest way: whether one document matches a query. Every index finds exactly
these."""

from __future__ import annotations

from typing import Any

from idgraph.model.index import IndexDocument
from idgraph.model.queries import All, AnyOf, Condition, Exists, FullText, Not, Prefix, Query, Range, Term
from sinks.index_values import ORDERED_CHARACTERS, ValueClass, asked_words, class_of, exact, ordered, words


def matches(document: IndexDocument, query: Query) -> bool:
    """Whether a search for the query finds the document."""
    return holds(All(query.clauses), document)


def values_of(document: IndexDocument, path: str) -> list[Any]:
    """The values of an attribute; none if it has none."""
    value = document.fields.get(path, [])
    return value if isinstance(value, list) else [value]


def words_of(document: IndexDocument, path: str | None) -> list[str]:
    """The words of an attribute, or of all."""
    paths = document.fields if path is None else [path]
    texts = [value for each in paths for value in values_of(document, each) if isinstance(value, str)]
    return [word for each in texts for word in words(each)]


def is_nan(value: Any) -> bool:
    """Whether a value counts as absent."""
    return class_of(value) is ValueClass.NUMBER and ordered(value) is None


def holds(condition: Condition, document: IndexDocument) -> bool:
    """Whether a document meets a condition."""
    match condition:
        case All(conditions):
            return all(holds(each, document) for each in conditions)
        case AnyOf(conditions):
            return any(holds(each, document) for each in conditions)
        case Not(negated):
            return not holds(negated, document)
        case Exists(path):
            return any(not is_nan(each) for each in values_of(document, path))
        case FullText(text, path, is_prefix, edits):
            asked, there = asked_words(text), set(words_of(document, path))
            last = asked.pop() if asked and is_prefix else None
            if last is not None and not any(each.startswith(last) for each in there):
                return False
            near = all(any(is_near(word, each, edits) for each in there) for word in asked)
            return bool(asked or last) and near
        case Term(path, value):
            return any(
                class_of(each) is class_of(value)
                and comparable_of(each, whole=True) == comparable_of(value, True)
                for each in values_of(document, path)
                if comparable_of(value) is not None
            )
        case Prefix(path, prefix):
            start = prefix[:ORDERED_CHARACTERS]
            return any(isinstance(each, str) and each.startswith(start) for each in values_of(document, path))
        case Range():
            return any(_within(condition, each) for each in values_of(document, condition.path))


def is_near(one: str, other: str, edits: int) -> bool:
    """Whether so many edits lead from one word to the other: a character more, less or another, or two neighbours that change
    places (optimal string alignment)."""
    if not edits or abs(len(one) - len(other)) > edits:
        return one == other
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        line = [row]
        for column, there in enumerate(other, 1):
            line.append(min(last[column] + 1, line[-1] + 1, last[column - 1] + (character != there)))
            if before and column > 1 and character == other[column - 2] and one[row - 2] == there:
                line[-1] = min(line[-1], before[column - 2] + 1)
        before, last = last, line
    return last[-1] <= edits


def _within(clause: Range, value: Any) -> bool:
    classes = {class_of(bound) for bound in (clause.lower, clause.upper) if bound is not None}
    own, comparable = class_of(value), comparable_of(value)
    if own is ValueClass.BOOLEAN or comparable is None or not classes <= {own}:
        return False
    if clause.lower is not None:
        lower = comparable_of(clause.lower)
        if lower is None or not (comparable > lower or (clause.include_lower and comparable == lower)):
            return False
    if clause.upper is not None:
        upper = comparable_of(clause.upper)
        if upper is None or not (comparable < upper or (clause.include_upper and comparable == upper)):
            return False
    return True


def comparable_of(value: Any, whole: bool = False) -> Any:
    """The part of a value that is compared; None for NaN."""
    if isinstance(value, str):
        return value if whole else value[:ORDERED_CHARACTERS]
    if isinstance(value, bool):
        return value
    number = ordered(value)
    return exact(value) if whole and number is not None else number
