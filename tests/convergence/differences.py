"""The differences between the states of two sites, for people."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from merge.fragments import FragmentState


def reported_beside(states: Mapping[str, bytes], tidy: Mapping[str, bytes]) -> str:
    """By line what only one of them has; both are stored states by fragment id."""
    return "\n".join(difflib.unified_diff(_lines(states), _lines(tidy), "site", "tidy", n=0, lineterm=""))


def _lines(states: Mapping[str, bytes]) -> list[str]:
    lines: list[str] = []
    for name, encoded in sorted(states.items()):
        state = FragmentState.decode(encoded)
        lines += [f"{name} {path}: {each}" for path, each in sorted(state.registers.items())]
        for path, cells in sorted(state.cells.items()):
            for policy, cell in sorted(cells.items()):
                lines += [f"{name} {path} {policy}: floor {cell.floor}"]
                lines += [f"{name} {path} {policy}: {each}" for each in sorted(cell.entries.items())]
                lines += [f"{name} {path} {policy} best: {each}" for each in sorted(cell.best.items())]
        lines += [
            f"{name} {each}"
            for each in sorted(map(str, [*state.markers.items(), *state.identifiers.items()]))
        ]
    return lines


def difference_of(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The members that are not the same, beside each other."""
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return "\n".join(f"{name}: {one.get(name)}\n    beside {other.get(name)}" for name in names)
