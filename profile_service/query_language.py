"""The small search language of the command line.

activity.search.query:guitar   the word stands in the attribute
demographics.gender=F          exactly this value ("F" in quotes: exactly this text)
identity.userId=44*            starts with ("44"* when what it starts with has to stand in quotes)
demographics.age>=30           also > <= <
guitar                         the word stands anywhere in the indexed text
"labels.cost centre"=7         quotes for a path with blanks or operators; a quote in it is written twice
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal

from idgraph.model import canonical
from idgraph.model.attributes import DataType
from idgraph.model.errors import QueryError
from idgraph.model.queries import Clause, FullText, Prefix, Query, Range, Term

# What looks like an operator is read whole, so that one of another language is no part of a path or value.
_CLAUSE = re.compile(
    r"""(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<path>[^=<>:\s]+?))(?P<operator>[!~]?[=<>:][=<>!~]*)(?P<value>.*)""",
    re.DOTALL,
)
_OPERATORS = ("=", ":", ">=", ">", "<=", "<")
_APART = re.compile(r"""(?:[^"\s]+\s+)?[!~]?[=<>]{1,3}(?:\s|$)|[^"\s]+\s+[!~]?[=<>]{1,3}\S""")
_WITHOUT_PATH = re.compile(r"[!~]?[=<>]+")


def parse_query(words: Iterable[str], type_of: Callable[[str], DataType | None]) -> Query:
    """Clauses, one a word, all of which must hold. `type_of` gives an attribute's declared type if known.

    Raises QueryError that shows the clause which cannot be read, and where.
    """
    return Query(tuple(_clause(word, type_of) for word in words))


def _clause(text: str, type_of: Callable[[str], DataType | None]) -> Clause:
    found = _CLAUSE.fullmatch(text)
    if found is None or found["path"] in ("!", "~"):
        return _words(text)
    path = found["path"] or found["quoted"].replace('""', '"')
    operator, value = found["operator"], found["value"]
    if operator not in _OPERATORS:
        raise QueryError(_no_operator(text, found))
    if not value:
        raise QueryError(f"nothing stands after {operator!r} in {text!r}")
    if operator == ":":
        return FullText(value, path)
    if operator == "=":
        if value.endswith("*") and not _is_quoted(value):
            return Prefix(path, _beginning(text, value[:-1]))
        return Term(path, _value(value, type_of(path)))
    bound = _value(value, type_of(path))
    if isinstance(bound, bool):
        raise QueryError(f"{text!r}: a range needs a number or text")
    if operator.startswith(">"):
        return Range(path, lower=bound, include_lower=operator == ">=")
    return Range(path, upper=bound, include_upper=operator == "<=")


def _words(text: str) -> FullText:
    if not text.strip():
        raise QueryError("an empty search word")
    if _APART.match(text):
        raise QueryError(f"{text!r}: write path, operator and value without blanks between: age>=65")
    if operator := _WITHOUT_PATH.match(text):
        raise QueryError(f"{text!r}: no path stands before {operator[0]!r}; write path=value, or words alone")
    return FullText(text)


def _no_operator(text: str, found: re.Match[str]) -> str:
    given, place = found["operator"], found.start("operator") + 1
    near = [each for each in _OPERATORS if set(each) == set(given)]
    advice = f"did you mean {near[0]} ?" if near else f"there are {' '.join(_OPERATORS)}."
    return (
        f"{text!r}: {given} at character {place} is no operator; {advice} "
        "A value that begins with such a sign stands in double quotes"
    )


def _beginning(text: str, value: str) -> str:
    beginning = value[1:-1] if _is_quoted(value) else value
    if not beginning:
        raise QueryError(f'{text!r}: nothing stands before the star; "*" in quotes is the star itself')
    return beginning


def _is_quoted(text: str) -> bool:
    return len(text) >= 2 and text[0] == text[-1] == '"'


def _value(text: str, declared: DataType | None) -> str | int | float | bool:
    if _is_quoted(text):
        return text[1:-1]
    if declared is DataType.STRING:
        return text
    try:
        value = canonical.decode(text.encode())
    except canonical.MalformedJSON:
        return text
    if isinstance(value, Decimal):
        # More digits or a larger exponent than a float has: a whole number is exact all the same.
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, bool | int | float) else text
