"""A profile for people: a tree of its attributes, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text
from rich.tree import Tree

from idgraph.model import canonical, paths
from idgraph.model.text import escape_control_chars

_MASK = {"$protected": True}
_MASKED = "••••••"


def profile_tree(profile: Mapping[str, Any]) -> Tree:
    """A profile's document, with its provenance, as a tree that shows the origin of each value."""
    root = Tree(_text(profile["id"], "bold"))
    names = root.add(_text("identifiers", "bold"))
    for identifier in profile["identifiers"]:
        names.add(_text(f"{identifier['type']}:{identifier['value']}"))
    attributes = root.add(_text("attributes", "bold"))
    branches: dict[tuple[str, ...], Tree] = {}
    protected = frozenset(profile.get("protected", ()))
    for path, provenance in profile["provenance"].items():
        *above, last = keys = paths.split(path)
        branch = attributes
        for depth in range(1, len(above) + 1):
            place = keys[:depth]
            branch = branches.get(place) or branches.setdefault(place, branch.add(_text(place[-1], "cyan")))
        value = _value(paths.value_at(profile["attributes"], keys), path in protected)
        branch.add(Text.assemble(_text(last), ": ", *value, _origin(provenance)))
    return root


def _value(value: Any, is_protected: bool) -> list[Text]:
    if value == _MASK:
        return [_text(_MASKED, "magenta")]
    shown = _text(_short(value), "green")
    return [shown, _text(" protected", "magenta")] if is_protected else [shown]


def _origin(found: Mapping[str, Any]) -> Text:
    spec = f"{found['spec']}@{found['spec_version']}"
    event = f" event {found['event']}" if found["event"] else ""
    # What is derived of no entries comes from no source.
    latest = f"{found['source']}{event}, " if found["source"] else ""
    return _text(f"  {_policy(found)}{latest}spec {spec}", "dim")


def _policy(found: Mapping[str, Any]) -> str:
    """The policy that made a value of several, as the text before the latest event."""
    policy, values = found.get("policy"), found.get("values", 1)
    if values == 1:
        return f"{policy}: " if policy else ""
    newest = "" if found["complete"] else "the newest "
    return f"{policy} of {newest}{values}, the latest from "


def _short(value: Any) -> str:
    text = canonical.encode_ordered(value).decode()
    return text if len(text) <= 100 else text[:97] + "..."


def _text(text: str, style: str = "") -> Text:
    """Text as it is: text from events is neither markup nor obeyed by the terminal."""
    return Text(escape_control_chars(text), style)
