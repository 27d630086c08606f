"""The small search language of the command line.

activity.search.query:guitar   the word stands in the attribute
demographics.gender=F          exactly this value ("F" in quotes: exactly this text)
identity.userId=44*            starts with
demographics.age>=30           also > <= <
guitar                         the word stands anywhere in the indexed text
"labels.cost centre"=7         quotes for a path with blanks or operators; a quote in it is written twice
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from model import canonical
from model.attributes import DataType
from model.errors import QueryError
from model.queries import Clause, FullText, Prefix, Query, Range, Term

_CLAUSE = re.compile(
    r"""(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<path>[^=<>:\s]+?))(?P<operator>>=|<=|=|>|<|:)(?P<value>.*)""",
    re.DOTALL,
)

_APART = re.compile(r"""(?:[^"\s]+\s+)?[=<>]{1,2}(?:\s|$)|[^"\s]+\s+[=<>]{1,2}\S""")


def parse_query(words: Iterable[str], type_of: Callable[[str], DataType | None]) -> Query:
    """Clauses, one a word, all of which must hold. `type_of` gives an attribute's declared type if known.

    Raises QueryError that shows the clause which cannot be read.
    """
    return Query(tuple(_clause(word, type_of) for word in words))


def _clause(text: str, type_of: Callable[[str], DataType | None]) -> Clause:
    found = _CLAUSE.fullmatch(text)
    if found is None:
        if not text.strip():
            raise QueryError("an empty search word")
        if _APART.match(text):
            raise QueryError(f"{text!r}: write path, operator and value without blanks between: age>=65")
        return FullText(text)
    path = found["path"] or found["quoted"].replace('""', '"')
    operator, value = found["operator"], found["value"]
    if not value:
        raise QueryError(f"nothing stands after {operator!r} in {text!r}")
    if operator == ":":
        return FullText(value, path)
    if operator == "=":
        if value.endswith("*") and len(value) > 1:
            return Prefix(path, value[:-1])
        return Term(path, _value(value, type_of(path)))
    bound = _value(value, type_of(path))
    if isinstance(bound, bool):
        raise QueryError(f"{text!r}: a range needs a number or text")
    if operator.startswith(">"):
        return Range(path, lower=bound, include_lower=operator == ">=")
    return Range(path, upper=bound, include_upper=operator == "<=")


def _value(text: str, declared: DataType | None) -> str | int | float | bool:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1]
    if declared is DataType.STRING:
        return text
    try:
        value = canonical.decode(text.encode())
    except canonical.MalformedJSON:
        return text
    return value if isinstance(value, bool | int | float) else text
