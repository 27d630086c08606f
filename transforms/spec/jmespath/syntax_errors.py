"""What is wrong with a JMESPath expression that cannot be parsed, in the words of those who write it."""

from __future__ import annotations

import re

from jmespath.exceptions import IncompleteExpressionError, JMESPathError, LexerError, ParseError

from idgraph.model.errors import SpecError
from transforms.spec.pointers import found

_TOKENS = {
    "quoted_identifier": "a key",
    "unquoted_identifier": "a key",
    "lbracket": "'['",
    "lbrace": "'{'",
    "rbracket": "']'",
    "rbrace": "'}'",
    "rparen": "')'",
    "colon": "':'",
    "comma": "','",
    "number": "a number",
    "star": "'*'",
    "eof": "the end",
}
_EXPECTED = re.compile(r"Expecting: (.+?), got: ")
_CHARACTER_HINTS = {
    "=": "equality is '=='",
    "-": 'a key with other characters than letters, digits and _ stands in double quotes: "a-b"',
    "$": "the whole payload is '@'; a key that starts with $ stands in double quotes: \"$key\"",
    "/": "there is no division",
    "+": "there is no addition; sum([a, b]) adds",
}


def syntax_error(expression: str, error: JMESPathError) -> SpecError:
    """The error of the parser as SpecError without a pointer, with the offset in the expression."""
    if not expression.strip():
        return SpecError("expected a JMESPath expression, found empty text")
    if not isinstance(error, ParseError):
        return SpecError("no valid JMESPath expression")
    offset = min(int(error.lex_position), len(expression))
    message, hint = _reported(expression, error, offset)
    return SpecError(f"JMESPath, character {offset + 1}: {message}", hint=hint, offset=offset)


def _reported(expression: str, error: ParseError, offset: int) -> tuple[str, str | None]:
    if isinstance(error, LexerError):
        return _lexer_error(expression, error, offset)
    expected = _EXPECTED.search(str(error.msg))
    wanted = _names(expected[1]) if expected else ""
    if isinstance(error, IncompleteExpressionError) or not error.token_value:
        return f"expected {wanted or 'more'}, found the end of the expression", _unclosed(expression)
    token = found(str(error.token_value))[1:-1]
    return (f"expected {wanted}, found '{token}'" if wanted else f"'{token}' cannot stand here"), None


def _lexer_error(expression: str, error: LexerError, offset: int) -> tuple[str, str | None]:
    unclosed = re.match(r"Unclosed (.) delimiter", str(error.message))
    if unclosed:
        return f"the {unclosed[1]} is not closed", None
    character = expression[offset : offset + 1]
    return f"'{character}' cannot stand here", _CHARACTER_HINTS.get(character)


def _names(expected: str) -> str:
    names = re.findall(r"[a-z_]+", expected)
    return " or ".join(dict.fromkeys(_TOKENS.get(name, name) for name in names))


def _unclosed(expression: str) -> str | None:
    """The bracket that was opened last and never closed; what stands in quotes does not count."""
    opened: list[str] = []
    for character in re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`""", "", expression):
        if character in "([{":
            opened.append(character)
        elif character in ")]}" and opened:
            opened.pop()
    return f"the '{opened[-1]}' is not closed" if opened else None
