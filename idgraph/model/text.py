"""Text for people: the name that was probably meant, lengths of time, characters that must not reach a terminal or page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_STEERING = (
    r"\x00-\x1f\x7f-\x9f"  # C0, delete and C1: colours, titles, the cursor, new lines
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of writing
    r"\u2028\u2029"  # separators of lines and paragraphs
    r"\ud800-\udfff"  # halves of pairs, which no output can encode
)
_INVISIBLE = r"\u200b-\u200d\u2060-\u2065\ufeff"
_ANY = re.compile(f"[{_STEERING}]")
_BUT_LINES_AND_TABS = re.compile(rf"(?![\n\t])[{_STEERING}]")
_UNSEEN = re.compile(rf"(?![\n\t])[{_STEERING}{_INVISIBLE}]")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6, has_case: bool = False) -> str | None:
    """The known name that is most like `name`; None if none is as like as `cutoff`, from 0 to 1. Letters of another case
    are the same ones, unless names have a case."""
    spelled = {each if has_case else each.lower(): each for each in known}
    close = get_close_matches(name if has_case else name.lower(), spelled, 1, cutoff)
    return spelled[close[0]] if close else None


def name_hint(name: str, known: Iterable[str]) -> str | None:
    """`did you mean 'shift'?` if a known name is close, else None."""
    near = nearest(name, known)
    return f"did you mean '{near}'?" if near else None


def duration(seconds: float) -> str:
    """A length of time as people say it: `40 s`, `5 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def escape_control_chars(text: str) -> str:
    """The text in one line, with control and direction characters written as in JSON: `\\u001b`."""
    return _ANY.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """As `escape_control_chars`, but new lines and tabs stay: JSON stays the same JSON."""
    return _BUT_LINES_AND_TABS.sub(_escaped, text)


def marked(text: str) -> str:
    """Control, direction and invisible characters as marks: `⟨U+001B⟩`. New lines and tabs stay."""
    return _UNSEEN.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
