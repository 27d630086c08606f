"""The results of some work with native code and with its reference implementations in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from idgraph import native
from idgraph.model.fragments import Origin
from idgraph.model.stamps import SpecRef, Stamp

ORIGIN = Origin(Stamp(0, 1, "shop", "e"), SpecRef("spec", 1))


def outcome(work: Callable[[], Any]) -> str:
    """The outcome, in words that distinguish 1, 1.0 and True."""
    try:
        return repr(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def both(work: Callable[[], Any]) -> tuple[str, str]:
    """What comes of some work with native code and without."""
    outcomes = []
    for wanted in (True, False):
        native.use(wanted)
        try:
            outcomes.append(outcome(work))
        finally:
            native.use(True)
    return outcomes[0], outcomes[1]
