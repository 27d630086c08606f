"""Links, decisions and histories as JSON shows them, on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from idgraph.model.jobs import moment_text
from idgraph.model.pins import PinRecord
from profile_service.history import ProfileMove, ProfilePeriod
from profile_service.links import Explanation, ShownLink
from profile_service.reader import origin_document


def explanation_document(found: Explanation) -> dict[str, Any]:
    """An explanation as JSON shows it."""
    return {
        "id": found.id,
        "identifiers": [str(each) for each in found.identifiers],
        "accepted": [link_document(each) for each in found.accepted],
        "refused": [link_document(each) for each in found.refused],
        "pins": [pin_document(each) for each in found.pins],
    }


def link_document(link: ShownLink) -> dict[str, Any]:
    """A pair of identifiers with its evidence."""
    document: dict[str, Any] = {"pair": [str(each) for each in link.pair]}
    if link.rule:
        document["rule"] = link.rule
    document["evidence"] = [
        {
            "source": each.source,
            "strength": each.strength,
            "oldest": origin_document(each.oldest),
            "newest": origin_document(each.newest),
        }
        for each in link.evidence
    ]
    if link.pin is not None:
        document["pin"] = pin_document(link.pin)
    return document


def pin_document(pin: PinRecord) -> dict[str, Any]:
    """A decision on a pair."""
    return {
        "pair": [pin.low, pin.high],
        "decision": pin.decision,
        "who": pin.who,
        "why": pin.why,
        "at": time_text(pin.at_ms),
    }


def move_document(move: ProfileMove) -> dict[str, Any]:
    """A change of profiles, with the cursor behind it."""
    cursor, at_ms, kind, fragment, previous, profile, segment = move
    what = {"segment": segment} if segment else {"fragment": fragment, "previous": previous}
    return {"cursor": cursor, "at": time_text(at_ms), "kind": kind, **what, "profile": profile}


def periods_document(fragment: str, periods: Sequence[ProfilePeriod]) -> dict[str, Any]:
    """The profiles that a fragment was part of, the oldest first."""
    return {
        "fragment": fragment,
        "periods": [
            {
                "profile": profile,
                "from": None if begin is None else time_text(begin),
                "to": None if end is None else time_text(end),
            }
            for profile, begin, end in periods
        ],
    }


def time_text(at_ms: int) -> str:
    """A moment in epoch milliseconds as RFC 3339 has it, in UTC."""
    return moment_text(at_ms, "milliseconds")
