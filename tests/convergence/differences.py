"""What differs between the states of two sites, for people."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from merge.fragments import FragmentState


def reported_beside(states: Mapping[str, bytes], tidy: Mapping[str, bytes]) -> str:
    """By line what only one of them has; both are stored states by fragment id."""
    return "\n".join(
        difflib.unified_diff(_reported(states), _reported(tidy), "site", "tidy", n=0, lineterm="")
    )


def _reported(states: Mapping[str, bytes]) -> list[str]:
    reported: list[str] = []
    for name, encoded in sorted(states.items()):
        state = FragmentState.decode(encoded)
        reported += [f"{name} {path}: {each}" for path, each in sorted(state.registers.items())]
        for path, cells in sorted(state.cells.items()):
            for policy, cell in sorted(cells.items()):
                reported += [f"{name} {path} {policy}: floor {cell.floor}"]
                reported += [f"{name} {path} {policy}: {each}" for each in sorted(cell.entries.items())]
                reported += [f"{name} {path} {policy} best: {each}" for each in sorted(cell.best.items())]
        reported += [
            f"{name} {each}"
            for each in sorted(map(str, [*state.markers.items(), *state.identifiers.items()]))
        ]
    return reported
