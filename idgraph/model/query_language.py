"""The search language of the command line.

activity.search.query:guitar   the word is in the attribute; `guit*` a word that begins so
demographics.gender=F          exactly this value ("F" in quotes: exactly this text)
identity.userId=44*            begins with ("44"* where the beginning has to be in quotes)
identity.email=*               the attribute has a value
activity.lastSeenAt<now-30d    a moment: `now` or `today`, moved by `s m h d w`, `today` also by months `M` and years `y`
demographics.birthday=today    within the day; `today@Europe/Berlin` in a time zone. "today" in quotes is the word
demographics.birthday=anniversary  of an attribute with the `time` `date`: today is an anniversary; `anniversary+7d`: in a week
demographics.age >= 30         also > <= <, and all of them without blanks; after a colon a blank too
guitar                         the word is anywhere in the indexed text; `guit*` as above
"labels.cost centre"=7         quotes for a path with blanks or operators; a quote in it is written twice

Clauses beside each other must all hold. `a OR b`, `NOT a`, and parentheses join them; these words are in capitals. NOT
binds closest, OR loosest.

An argument of the command line, whose quotes the shell took away, is one clause, blanks and all: `name=Ann Lee`. It is read as the
same text over HTTP if an operator joins clauses in it, or a path with an operator stands behind a blank: `guitar age>=65`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from itertools import islice

from idgraph.model import canonical, paths
from idgraph.model.attributes import DataType
from idgraph.model.durations import TimeForm, anniversary, is_moment, required_moment
from idgraph.model.errors import QueryError
from idgraph.model.queries import (
    All,
    Anniversary,
    AnyOf,
    Clause,
    Condition,
    Exists,
    FullText,
    Not,
    Prefix,
    Query,
    Range,
    Relative,
    Term,
    leaves,
)
from idgraph.model.stamps import epoch_ms
from idgraph.model.text import nearest

# A text that looks like an operator is read whole, so that one of another language is no part of a path or value.
_CLAUSE = re.compile(
    r"""(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<path>[^=<>:\s]+?))(?P<operator>[!~]?[=<>:][=<>!~]*)(?P<value>.*)""",
    re.DOTALL,
)
_OPERATORS = ("=", ":", ">=", ">", "<=", "<")
_APART = re.compile(r"""[^"\s]+\s+[!~]?[=<>]|[^"\s=<>:]+[=<>]+\s""")
_PATH = re.compile(r"""(?:"(?:[^"]|"")+"|[^"\s=<>:]+)""")
_UNENDED = re.compile(_PATH.pattern + r"(?:[!~]?[=<>]+|:)")
_OPERATOR = re.compile(r"[!~]?[=<>]")
_WITHOUT_PATH = re.compile(r"[!~]?[=<>]+")
_TOKEN = re.compile(r"""(?:"(?:[^"]|"")*"|[^\s"])+|\S+""")
_JOINING = ("AND", "OR", "NOT")
_BETWEEN = (*_JOINING, "(", ")")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_JOINED = re.compile(r"(?:^|\s|\()(?:AND|OR|NOT)(?:\s|\)|$)")
_FURTHER = re.compile(r"\S\s+(?!\d)\w[^\s=<>:]*(?:\s*[=<>]|:[^\s/])")
"""A further clause behind a blank. A time such as 10:00, a URL and a word before a colon are part of a value."""
MOST_NESTED = 50
"""So deep parentheses may be nested."""


MOST_WARNED = 20
"""Warnings of one search, and unknown attributes that are looked for."""


def parse_query(
    words: Iterable[str],
    type_of: Callable[[str], DataType | None],
    time_of: Callable[[str], TimeForm | None] = lambda _: None,
) -> Query:
    """Words of a command line, each a clause, or several with AND, OR, NOT and parentheses. `type_of` gives an attribute's
    declared type if known, `time_of` the form of one that is a time: of another text `now` is a word.

    Raises QueryError that shows the clause which cannot be read, and where.
    """
    parser = _Parser(_tokens(words), type_of, time_of)
    if not parser.tokens:
        return Query()
    found = parser.any_of(0)
    if parser.tokens:
        raise QueryError(_UNOPENED)
    return Query(found.conditions if isinstance(found, All) else (found,))


def _tokens(words: Iterable[str]) -> list[str]:
    """Clauses, operators and parentheses. A word is one clause, blanks and all, unless operators join clauses in it, a further
    clause stands behind a blank, or blanks stand around the operator of a clause."""
    tokens: list[str] = []
    depth = 0
    for word in words:
        is_joined = (
            _JOINED.search(_QUOTED.sub("", word))
            or word.startswith("(")
            or _APART.match(word)
            # A quoted text is a path or a value.
            or _FURTHER.search(_QUOTED.sub("q", word))
        )
        for token in _TOKEN.findall(word) if is_joined else [word]:
            clause = token
            while clause.startswith("(") and clause != "(":
                tokens.append("(")
                depth, clause = depth + 1, clause[1:]
            closed = 0
            # Parentheses within a value are part of it.
            while depth > closed and clause.endswith(")") and clause != ")" and _is_unbalanced(clause):
                closed, clause = closed + 1, clause[:-1]
            tokens += [clause, *(")" * closed)]
            depth += (clause == "(") - (clause == ")") - closed
    return list(_attached(tokens))


def _attached(tokens: Iterable[str]) -> Iterator[str]:
    """The same, with path, operator and value in one where blanks stood between them."""
    last: str | None = None
    for token in tokens:
        if last is not None and _belongs(token, last):
            last += token
            continue
        yield from () if last is None else (last,)
        last = token
    yield from () if last is None else (last,)


def _belongs(token: str, last: str) -> bool:
    if _UNENDED.fullmatch(last):
        return token not in _BETWEEN
    return bool(_OPERATOR.match(token) and _PATH.fullmatch(last) and last not in _BETWEEN)


def _is_unbalanced(clause: str) -> bool:
    bare = _QUOTED.sub("", clause)
    return bare.count(")") > bare.count("(")


_UNCLOSED = "a `(` is never closed; a text with parentheses stands in double quotes"
_UNOPENED = "a `)` has no `(` before it"


class _Parser:
    """Takes tokens from the front of `tokens`."""

    def __init__(
        self,
        tokens: list[str],
        type_of: Callable[[str], DataType | None],
        time_of: Callable[[str], TimeForm | None],
    ) -> None:
        self.tokens = tokens
        self._type_of = type_of
        self._time_of = time_of

    def any_of(self, depth: int) -> Condition:
        """Conditions joined by OR."""
        found = [self._all_of(depth)]
        while self._takes("OR"):
            found.append(self._all_of(depth))
        return found[0] if len(found) == 1 else AnyOf(tuple(found))

    def _all_of(self, depth: int) -> Condition:
        found: list[Condition] = []
        while self.tokens and self.tokens[0] not in ("OR", ")"):
            if found:
                self._takes("AND")
            self._require_clause()
            found.append(self._one(depth))
        if not found and not depth and self.tokens[:1] == [")"]:
            raise QueryError(_UNOPENED)
        self._require(bool(found))
        return found[0] if len(found) == 1 else All(tuple(found))

    def _one(self, depth: int) -> Condition:
        if depth > MOST_NESTED:
            raise QueryError(f"parentheses and NOT are nested more than {MOST_NESTED} deep")
        if self._takes("NOT"):
            self._require_clause()
            return Not(self._one(depth + 1))
        if self._takes("("):
            if not self.tokens:
                raise QueryError(_UNCLOSED)
            found = self.any_of(depth + 1)
            if not self._takes(")"):
                raise QueryError(_UNCLOSED)
            return found
        return _clause(self.tokens.pop(0), self._type_of, self._time_of)

    def _takes(self, token: str) -> bool:
        if self.tokens and self.tokens[0] == token:
            self.tokens.pop(0)
            return True
        return False

    def _require_clause(self) -> None:
        self._require(bool(self.tokens) and self.tokens[0] not in ("AND", "OR", ")"))

    def _require(self, is_there: bool) -> None:
        if not is_there:
            raise QueryError(
                "AND, OR and NOT join clauses: one stands on each side. In double quotes they are words"
            )


def _clause(
    text: str,
    type_of: Callable[[str], DataType | None],
    time_of: Callable[[str], TimeForm | None],
) -> Condition:
    found = _CLAUSE.fullmatch(text)
    if found is None or found["path"] in ("!", "~"):
        return _words(text)
    path = found["path"] or found["quoted"].replace('""', '"')
    operator, value = found["operator"], found["value"]
    if operator not in _OPERATORS:
        raise QueryError(_no_operator(text, found))
    if not value:
        raise QueryError(f"nothing stands after {operator!r} in {text!r}")
    if value == "*" and operator in "=:":
        return Exists(path)
    if operator == ":":
        return _full_text(value, path)
    if operator == "=" and value.endswith("*") and not _is_quoted(value):
        return Prefix(path, _beginning(text, value[:-1]))
    declared = type_of(path) or _type_within_array(path, type_of)
    if operator == "=" and value.startswith("anniversary") and time_of(path) == "date":
        day = f"today{value.removeprefix('anniversary')}"
        try:
            return Anniversary(path, str(anniversary(day)))
        except ValueError as error:
            raise QueryError(f"{text!r}: {error}") from None
    is_word = declared in _WITHOUT_TIME and time_of(path) is None
    if is_moment(value) and not is_word and (operator != "=" or value.startswith("today")):
        return _relative(text, path, operator, value)
    bound = _value(value, declared)
    if operator == "=":
        is_either = declared is DataType.ARRAY and not isinstance(bound, str)
        return AnyOf((Term(path, bound), Term(path, value))) if is_either else Term(path, bound)
    if isinstance(bound, bool):
        raise QueryError(f"{text!r}: a range needs a number or text")
    if operator.startswith(">"):
        return Range(path, lower=bound, include_lower=operator == ">=")
    return Range(path, upper=bound, include_upper=operator == "<=")


_WITHOUT_TIME = (DataType.STRING, DataType.BOOLEAN)
"""Types of which no value is a time, unless metadata says so."""


def _relative(text: str, path: str, operator: str, value: str) -> Relative:
    """The clause that follows the clock."""
    try:
        found = required_moment(value)
        if operator == "=":
            return Relative(path, str(found), str(found.moved(1)), include_upper=False)
    except ValueError as error:
        raise QueryError(f"{text!r}: {error}") from None
    if operator.startswith(">"):
        return Relative(path, lower=str(found), include_lower=operator == ">=")
    return Relative(path, upper=str(found), include_upper=operator == "<=")


def _type_within_array(path: str, type_of: Callable[[str], DataType | None]) -> DataType | None:
    """The catalogue has no type for members of the objects in an array: it has the array."""
    is_within = any(type_of(above) is DataType.ARRAY for above in paths.ancestors(path))
    return DataType.ARRAY if is_within else None


def _words(text: str) -> FullText:
    if not text.strip():
        raise QueryError("an empty search word")
    if operator := _WITHOUT_PATH.match(text):
        raise QueryError(f"{text!r}: no path stands before {operator[0]!r}; write path=value, or words alone")
    return _full_text(text, None)


def _full_text(text: str, path: str | None) -> FullText:
    """Words; the last may be a beginning."""
    if text[-1:] == "*" and text[-2:-1].isalnum():
        return FullText(text[:-1], path, is_prefix=True)
    return FullText(text, path)


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


def warnings(
    query: Query,
    types: Mapping[str, DataType],
    found_type: Callable[[str], DataType | None] | None = None,
    others: Iterable[str] = (),
    within: Iterable[str] = (),
) -> list[str]:
    """Warnings of clauses that never match or look like something else, each once, and not of everything where there is much.
    `types` are those of the catalogue; `found_type` gives that of the values that profiles have of an attribute which it does
    not know. `others` are further paths that were asked for, such as one to sort by; `within` are those that stand for all
    at or below them."""
    found: dict[str, None] = {}
    for said in _warnings(query, _Known(types, found_type), others, within):
        found[said] = None
        if len(found) > MOST_WARNED:
            return [
                *list(found)[:MOST_WARNED],
                "there are more such clauses; these warnings are of the first",
            ]
    return list(found)


class _Known:
    """The types of attributes. To find one is work, and so is a hint: of very many unknown ones it is not done."""

    def __init__(
        self, types: Mapping[str, DataType], found_type: Callable[[str], DataType | None] | None
    ) -> None:
        self.types = types
        self._found_type = found_type or (lambda path: _type_within_array(path, types.get))
        self._found: dict[str, DataType | None] = {}

    def type_of(self, path: str) -> DataType | None:
        """None for an attribute of which nothing is known."""
        if (declared := self.types.get(path)) is not None:
            return declared
        if path not in self._found and len(self._found) <= MOST_WARNED:
            self._found[path] = self._found_type(path)
        # As of an array nothing is said.
        return self._found.get(path, DataType.ARRAY)

    def has_around(self, path: str) -> bool:
        """Whether there is an attribute at a path, above, or below it."""
        own = (path, *paths.ancestors(path))
        return (
            path in self._above or any(each in self.types for each in own) or self.type_of(path) is not None
        )

    @cached_property
    def _above(self) -> set[str]:
        return {above for path in self.types for above in paths.ancestors(path)}

    def unknown(self, path: str) -> str:
        """The warning of an unknown attribute."""
        return f"no attribute is called {path}; {attribute_hint(path, self.types)}"


def _warnings(query: Query, known: _Known, others: Iterable[str], within: Iterable[str]) -> Iterator[str]:
    for clause in leaves(query):
        if isinstance(clause, FullText):
            yield from _about_words(clause)
        if clause.path is None:
            continue
        declared = known.type_of(clause.path)
        if declared is None:
            yield known.unknown(clause.path)
        elif problem := _of_another_type(clause, declared):
            yield f"{clause.path} is of type {declared}: {problem}"
        yield from _about_stars(clause)
    yield from (known.unknown(path) for path in others if known.type_of(path) is None)
    for path in within:
        if path and not known.has_around(path):
            yield f"no attribute has the path {path}, or one above or below it; {attribute_hint(path, known.types)}"


def _about_stars(clause: Clause) -> Iterator[str]:
    """Warnings of wildcards of other languages."""
    text = clause.value if isinstance(clause, Term) else clause.prefix if isinstance(clause, Prefix) else ""
    if not isinstance(text, str):
        return
    path = clause.path
    if isinstance(clause, Term) and text.endswith("*") and "*" not in text[:-1]:
        yield f'within quotes a star is a star; a beginning is written {path}="…"*'
    elif "*" in text or _QUESTION.search(text):
        parts = (re.sub(r"^\W+|\W+$", "", part) for part in re.split(r"[*?]+", text))
        words = " ".join(part for part in parts if any(map(str.isalnum, part)))
        by_words = f"; {path}:{_as_value(words)} finds its words anywhere in the value" if words else ""
        yield (
            f"{path}={text}: * stands for other characters only behind a beginning, and ? never does: "
            f"this finds the sign itself{by_words}"
        )


_QUESTION = re.compile(r"^[^/]*\w\?\w[^/]*$")
"""One that stands for a character, and is no end of a sentence and no part of a URL."""


def _as_value(text: str) -> str:
    return f'"{text}"' if any(each.isspace() or each in '=<>"()' for each in text) else text


def attribute_hint(path: str, known: Collection[str]) -> str:
    """The hint for an unknown attribute."""
    near = nearest_path(path, known)
    return f"did you mean {near}?" if near else "`idgraph attributes search` finds them"


def nearest_path(path: str, known: Collection[str]) -> str | None:
    """The known attribute that was most likely meant: by its last keys, else by its letters."""
    ends = [each for each in known if f".{each}".lower().endswith(f".{path.lower()}")]
    return min(ends, key=len) if ends else nearest(path, known, has_case=True)


def corrected(text: str, query: Query, types: Mapping[str, DataType]) -> str:
    """The text of a query with the nearest known attribute in place of each unknown one; of the first, where there are
    very many."""
    asked = dict.fromkeys(clause.path for clause in leaves(query) if clause.path not in types)
    for path in islice(asked, MOST_WARNED):
        near = path and nearest_path(path, types)
        if path and near and _PATH.fullmatch(near):
            text = re.sub(rf"(?<![^\s(]){re.escape(path)}(?=\s*[=<>:])", near.replace("\\", r"\\"), text)
    return text


def _about_words(clause: FullText) -> Iterator[str]:
    if not any(each.isalnum() for each in clause.words):
        yield f"{clause.words!r} has no word, so it finds nothing"
    elif re.search(r"\*\w|\w\*", clause.words):
        yield f"{clause.words!r}: a star stands only at the end, behind a word's beginning; elsewhere it parts words"
    elif clause.path is None and clause.words.upper() in _JOINING and not clause.is_prefix:
        yield f"{clause.words!r} is searched as a word; {clause.words.upper()} in capitals joins clauses"


_NUMERIC = (DataType.INTEGER, DataType.NUMBER)


def _of_another_type(clause: Clause, declared: DataType) -> str | None:
    """The reason why a clause finds no value of this type."""
    if declared is DataType.ARRAY or isinstance(clause, Exists):
        return None
    if isinstance(clause, Prefix | FullText):
        return None if declared is DataType.STRING else "it has no text to search"
    if isinstance(clause, Relative | Anniversary) and declared is not DataType.BOOLEAN:
        return None
    given = [clause.value] if isinstance(clause, Term) else [clause.lower, clause.upper]
    for value in given:
        if value is None:
            continue
        if declared in _NUMERIC and (isinstance(value, str | bool)):
            return f"{value!r} is no number{_as_milliseconds(value)}"
        if declared is DataType.STRING and not isinstance(value, str):
            return f"{value!r} is no text"
        if declared is DataType.STRING and isinstance(clause, Range) and _RELATIVE.fullmatch(str(value)):
            return f"{value!r} is compared as text; its metadata does not say that it is a time (`time`)"
        if declared is DataType.BOOLEAN and not isinstance(value, bool):
            return f"{value!r} is neither true nor false"
    return None


_RELATIVE = re.compile(r"(?:now|today)(?:[+-]\d+[smhdwMy])?(?:@\S*)?(?:/[smhdwMy])?")
MOMENTS = "moments are now-30d (s m h d w) and today-18y (also M y), with a time zone today@Europe/Berlin"


def _as_milliseconds(value: str | bool) -> str:
    """For a date that is compared with a number: the number that was most likely meant."""
    if _RELATIVE.fullmatch(str(value)):
        return f"; {MOMENTS}"
    moment = _moment(str(value))
    return "" if moment is None else f"; in milliseconds since 1970 it is {epoch_ms(moment)}"


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
