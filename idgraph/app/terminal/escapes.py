"""Text of events on a terminal: characters that would steer it are shown and not obeyed."""

from __future__ import annotations

import re

_STEERING = (
    r"\x00-\x1f\x7f-\x9f"  # C0, delete and C1: colours, titles, the cursor, new lines
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
    r"\u2028\u2029"  # separators of lines and paragraphs
    r"\ud800-\udfff"  # halves of pairs, which no output can encode
)
_ANY = re.compile(f"[{_STEERING}]")
_BUT_LINES_AND_TABS = re.compile(rf"(?![\n\t])[{_STEERING}]")


def escape_control_chars(text: str) -> str:
    """The text in one line, such characters written as in JSON: `\\u001b`."""
    return _ANY.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """The same for text of several lines, in which new lines and tabs stay. What was JSON is the same JSON."""
    return _BUT_LINES_AND_TABS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
