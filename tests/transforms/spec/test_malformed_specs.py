"""A malformed spec is refused with a pointer to a place that it has, and with words that help; nothing else happens."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from idgraph.model.errors import SpecError
from tests.lanes import examples
from tests.transforms.jolt_cases import FOLDER
from tests.transforms.spec.mutations import mutations
from transforms import compile_spec
from transforms.spec.compiler import find_problems
from transforms.spec.pointers import pointer

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/specs/*.json"))
MOST = 150
"""Mutations of one file that are tried, chosen by chance; `python -m tests.transforms.spec.test_malformed_specs` tries all."""


def specs_of(file: Path) -> list[Any]:
    content = json.loads(file.read_bytes())
    return [each["spec"] for each in content] if file.parent == FOLDER else [content["operations"]]


def complaint(spec: Any) -> str | None:
    """What is wrong with the error of a spec; None if nothing is, or if it compiles."""
    try:
        compile_spec(spec)
    except SpecError as error:
        if error.pointer not in places(spec):
            return f"{error.pointer!r} is no place: {error.message}"
        if not find_problems(spec):
            return f"nothing is found where something is wrong: {error}"
        return None if error.message else "there is no message"
    return None


def places(value: Any, above: str = "") -> set[str]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {above}
    for key, below in parts:
        found |= places(below, above + pointer(key))
    return found


@pytest.mark.long
@pytest.mark.property
@pytest.mark.parametrize("file", [*EXAMPLES, *sorted(FOLDER.glob("*.json"))], ids=lambda file: file.stem)
def test_mutations(file: Path) -> None:
    mutated = [each for spec in specs_of(file) for each in mutations(spec)]
    for spec in Random(file.stem).sample(mutated, min(examples(MOST, MOST // 3), len(mutated))):
        assert complaint(spec) is None, json.dumps(spec)


if __name__ == "__main__":
    for file in [*EXAMPLES, *sorted(FOLDER.glob("*.json"))]:
        tried = 0
        for spec in specs_of(file):
            for mutated in mutations(spec):
                tried += 1
                wrong = complaint(mutated)
                if wrong:
                    print(wrong, json.dumps(mutated))
        print(f"{file.name}: {tried} mutations")
