"""Cases by hand, each with the answer that the Java library 0.1.8 gave: cases/OPERATION.json.

A case has `name`, `spec`, `input`, perhaps `context`, and `output` or `error` (`spec` or `transform`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).with_name("cases")
CHAINS = ("chain", "found")
"""Files whose specs are whole chains; `found` has what `python -m tests.oracle` found."""


class Case(NamedTuple):
    """`spec` is a whole chain."""

    label: str
    spec: list[Any]
    input: Any
    context: Any
    answer: dict[str, Any]


def cases() -> list[Case]:
    """All of them, in the order of the files."""
    found: list[Case] = []
    for file in sorted(FOLDER.glob("*.json")):
        for case in json.loads(file.read_text()):
            spec = case["spec"]
            if file.stem not in CHAINS:
                spec = [{"operation": file.stem, "spec": spec}]
            answer = {key: case[key] for key in ("output", "error") if key in case}
            found.append(
                Case(f"{file.stem}: {case['name']}", spec, case["input"], case.get("context"), answer)
            )
    return found


def exact(value: Any) -> Any:
    """A form in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: exact(below) for key, below in value.items()}
    if isinstance(value, list):
        return list(map(exact, value))
    return type(value).__name__, value
