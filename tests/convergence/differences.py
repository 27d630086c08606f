"""What differs between the states of two sites, for people."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from merge import codec


def told_beside(states: Mapping[str, bytes], tidy: Mapping[str, bytes]) -> str:
    """By line what only one of them has; both are stored states by fragment id."""
    return "\n".join(difflib.unified_diff(_told(states), _told(tidy), "site", "tidy", n=0, lineterm=""))


def _told(states: Mapping[str, bytes]) -> list[str]:
    told: list[str] = []
    for name, encoded in sorted(states.items()):
        state = codec.decode(encoded)
        told += [f"{name} {path}: {each}" for path, each in sorted(state.registers.items())]
        for path, cells in sorted(state.cells.items()):
            for policy, cell in sorted(cells.items()):
                told += [f"{name} {path} {policy}: floor {cell.floor}"]
                told += [f"{name} {path} {policy}: {each}" for each in sorted(cell.entries.items())]
                told += [f"{name} {path} {policy} best: {each}" for each in sorted(cell.best.items())]
        told += [
            f"{name} {each}"
            for each in sorted(map(str, [*state.markers.items(), *state.identifiers.items()]))
        ]
    return told
