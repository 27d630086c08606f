"""Real payloads, and specs made of a payload's own paths."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SHARED = Path(os.environ.get("IDGRAPH_CORPUS", ROOT.parent / "shared" / "data"))
"""More payloads, if they are there: folders of JSON Lines, plain or gzip'd."""

_SPECIAL = re.compile(r"([@&*$#\[\].])")
_WRITABLE = re.compile(r"[A-Za-z0-9_\-]+")
_TEXT_FUNCTIONS = [
    "=toUpper",
    "=trim",
    "=size",
    "=toString",
    "=split(',',@(1,&0))",
    "=substring(@(1,&0),0,3)",
]
_FUNCTIONS = ["=toInteger", "=toDouble", "=toLong", "=toString", "=abs", "=toBoolean", "=notNull", "=size"]


def payloads(folder: Path, most: int) -> Iterator[Any]:
    """At most so many payloads of each file below a folder, spread over the file."""
    for file in sorted(folder.rglob("*.json*")):
        if ".jsonl" in file.name or file.name.endswith(".json.gz"):
            lines = _lines(file)
            yield from (json.loads(line) for line in lines[:: max(1, len(lines) // most)][:most])


def _lines(file: Path) -> list[bytes]:
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        return [line for line in islice(stream, 20_000) if line.startswith(b"{")]


def task_for(random: Random, payload: Any) -> dict[str, Any]:
    """A chain that starts with a `shift` of some of the payload's paths."""
    paths = list(_paths(payload, ()))
    chosen = random.sample(paths, min(len(paths), random.randint(1, 12)))
    spec: dict[str, Any] = {}
    for path in chosen:
        _shift(random, spec, path)
    chain = [{"operation": "shift", "spec": spec}]
    while random.random() < 0.6:
        chain.append(_later(random, chosen))
    return {"spec": chain, "input": payload, "context": None}


def _paths(value: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The paths of all leaves, and of some containers."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if above and (not parts or len(above) % 3 == 0):
        yield above
    for key, below in parts:
        # No notation can say a key with these; and an empty one is left out of paths.
        if key != "" and not (isinstance(key, str) and ("|" in key or "\\" in key)):
            yield from _paths(below, (*above, key))


def _shift(random: Random, spec: dict[str, Any], path: tuple[str | int, ...]) -> None:
    """Adds one path to a `shift`; what is in the way stays."""
    place = spec
    for level, key in enumerate(path):
        spelled = "*" if isinstance(key, int) or random.random() < 0.15 else _SPECIAL.sub(r"\\\1", key)
        if level == len(path) - 1:
            place.setdefault(spelled, _target(random, path))
            return
        below = place.setdefault(spelled, {})
        if not isinstance(below, dict):
            return
        if random.random() < 0.1:
            below.setdefault(random.choice(["@", "$", "$1"]), "extra." + random.choice(["k[]", "all", "&"]))
        place = below


def _target(random: Random, path: tuple[str | int, ...]) -> Any:
    last = str(path[-1])
    name = last if _WRITABLE.fullmatch(last) else "strange"
    targets = [
        name,
        f"out.{name}",
        f"out.{name}",
        "list[]",
        "rest.&",
        f"deep.{name}.x",
        "by.&1",
        f"{name}[&1]",
        "n[#2].v",
    ]
    if random.random() < 0.1:
        return random.sample(targets, 2)
    return random.choice(targets)


def _later(random: Random, paths: list[tuple[str | int, ...]]) -> dict[str, Any]:
    names = [str(path[-1]) for path in paths if _WRITABLE.fullmatch(str(path[-1]))] or ["x"]
    some = {random.choice(names) for _ in range(random.randint(1, 3))}
    match random.choice(["modify", "modify", "default", "remove", "cardinality", "sort"]):
        case "modify":
            mode = random.choice(["overwrite", "default", "define"])
            functions = random.choice([_TEXT_FUNCTIONS, _FUNCTIONS])
            below = {f"{name}?" if random.random() < 0.5 else name: random.choice(functions) for name in some}
            return {"operation": f"modify-{mode}-beta", "spec": {"out": below}}
        case "default":
            return {"operation": "default", "spec": {"out": dict.fromkeys(some, "none"), "always": True}}
        case "remove":
            return {"operation": "remove", "spec": {"out": dict.fromkeys(some, ""), "list": {"0": ""}}}
        case "cardinality":
            many = random.choice(["ONE", "MANY"])
            return {"operation": "cardinality", "spec": {"out": dict.fromkeys(some, many), "list": "ONE"}}
    return {"operation": "sort", "spec": {}}
