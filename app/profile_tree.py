"""A profile for people: a tree of its attributes, each with where it came from."""

from __future__ import annotations

import json
from typing import Any

from rich.markup import escape
from rich.tree import Tree

from model import paths
from profile_service.profiles import MASK, Profile, ProfileLeaf

_MASKED = "••••••"


def profile_tree(profile: Profile) -> Tree:
    """A profile as a tree that shows where each value came from."""
    root = Tree(f"[bold]{escape(profile.id)}[/]")
    names = root.add("[bold]identifiers[/]")
    for identifier in profile.identifiers:
        names.add(escape(str(identifier)))
    attributes = root.add("[bold]attributes[/]")
    branches: dict[tuple[str, ...], Tree] = {}
    for leaf in profile.leaves:
        _add_leaf(attributes, branches, leaf)
    return root


def _add_leaf(root: Tree, branches: dict[tuple[str, ...], Tree], leaf: ProfileLeaf) -> None:
    *above, last = paths.split(leaf.path)
    branch = root
    for depth in range(1, len(above) + 1):
        keys = tuple(above[:depth])
        branch = branches.get(keys) or branches.setdefault(
            keys, branch.add(f"[cyan]{escape(above[depth - 1])}[/]")
        )
    register = leaf.register
    shown = f"[magenta]{_MASKED}[/]" if leaf.value == MASK else f"[green]{escape(_short(leaf.value))}[/]"
    lock = " [magenta]protected[/]" if leaf.protected and leaf.value != MASK else ""
    origin = f"{register.stamp.source} event {register.stamp.event_id}, spec {register.spec}"
    branch.add(f"{escape(last)}: {shown}{lock}  [dim]{escape(origin)}[/]")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else text[:97] + "..."
