"""A profile for people: a tree of its attributes, each with where it came from."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from rich.tree import Tree

from idgraph.model import canonical, paths
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.text import escape_control_chars
from merge.resolution import Shown
from profile_service.reader import MASK, Profile, ProfileLeaf

_MASKED = "••••••"


def profile_tree(profile: Profile) -> Tree:
    """A profile as a tree that shows where each value came from."""
    root = Tree(_text(profile.id, "bold"))
    names = root.add(_text("identifiers", "bold"))
    for identifier in profile.identifiers:
        names.add(_text(str(identifier)))
    attributes = root.add(_text("attributes", "bold"))
    branches: dict[tuple[str, ...], Tree] = {}
    for leaf in profile.leaves:
        _add_leaf(attributes, branches, leaf)
    return root


def _add_leaf(root: Tree, branches: dict[tuple[str, ...], Tree], leaf: ProfileLeaf) -> None:
    *above, last = paths.split(leaf.path)
    branch = root
    for depth in range(1, len(above) + 1):
        keys = tuple(above[:depth])
        branch = branches.get(keys) or branches.setdefault(keys, branch.add(_text(above[depth - 1], "cyan")))
    branch.add(Text.assemble(_text(last), ": ", *_value(leaf), _origin(leaf)))


def _value(leaf: ProfileLeaf) -> list[Text]:
    if leaf.value == MASK:
        return [_text(_MASKED, "magenta")]
    shown = _text(_short(leaf.value), "green")
    return [shown, _text(" protected", "magenta")] if leaf.protected else [shown]


def _origin(leaf: ProfileLeaf) -> Text:
    register = leaf.register
    origin = f"{register.stamp.source} event {register.stamp.event_id}, spec {register.spec}"
    return _text(f"  {_policy(leaf.shown)}{origin}", "dim")


def _policy(shown: Shown) -> str:
    """How a value was made of several, before the latest event that it is of."""
    if len(shown.parts) == 1:
        return "" if shown.policy is ReconciliationPolicy.LATEST else f"{shown.policy}: "
    newest = "" if shown.is_complete else "the newest "
    return f"{shown.policy} of {newest}{len(shown.parts)}, the latest from "


def _short(value: Any) -> str:
    text = canonical.encode_ordered(value).decode()
    return text if len(text) <= 100 else text[:97] + "..."


def _text(text: str, style: str = "") -> Text:
    """Text as it is: what comes from events is neither markup nor obeyed by the terminal."""
    return Text(escape_control_chars(text), style)
