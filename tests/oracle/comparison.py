"""The results of the Java library and ours for one task, side by side."""

from __future__ import annotations

import copy
import json
from math import isfinite
from typing import Any

from idgraph.model.errors import SpecError, TransformError
from tests.transforms.jolt_cases import exact
from transforms import compile_spec

REFUSED_EARLY = (
    "levels above this place",
    "there is no group",
    "nested deeper than",
    "an object as the spec of default",
    "there is no function",
    "is not closed",
    "a pattern that is not supported",
    "the payload is nested too deeply",
)
"""Where we are stricter on purpose: Java fails at run time, or when it writes an endless output."""
JAVA_ONLY = ("UnsupportedOperationException", "ConcurrentModificationException", "StackOverflowError")
"""Where Java fails and we need not: `split`, `toList` and their like give lists there that cannot grow, it
changes what it reads, or follows a context that it put into itself."""


def ours(task: dict[str, Any]) -> dict[str, Any]:
    """What our engine answers, in the form of the oracle's answers."""
    try:
        return {"output": compile_spec(task["spec"])(task["input"], task.get("context"))}
    except SpecError as error:
        return {"error": "spec", "detail": str(error)}
    except TransformError as error:
        return {"error": "transform", "detail": str(error)}


def difference(task: dict[str, Any], theirs: dict[str, Any]) -> str | None:
    """What is wrong with our answer, None if nothing is: another result, other types or order of keys, or
    a task that was changed."""
    before = copy.deepcopy(task)
    found = ours(task)
    if ordered(task) != ordered(before):
        return "the task was changed"
    if is_deliberate(found, theirs):
        return None
    reported = f"we: {_short(found)}; Java: {_short(theirs)}"
    if found.get("error") != theirs.get("error") or exact(found.get("output")) != exact(theirs.get("output")):
        return None if _is_shared_in_java(task) or not has_order(task["spec"][:-1]) else reported
    if has_order(task["spec"]) and ordered(found.get("output")) != ordered(theirs.get("output")):
        return f"order of keys: {reported}"
    return None


def is_deliberate(found: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether the two may differ (docs/mapping.md says where and why)."""
    detail = theirs.get("detail", "")
    return (
        any(reason in found.get("detail", "") for reason in REFUSED_EARLY)
        or any(reason in detail for reason in JAVA_ONLY)
        or "[Ljava.lang.Object;" in str(theirs.get("output"))
        or theirs.get("error") == "hangs"
        or not is_json(theirs.get("output"))
    )


def is_json(value: Any) -> bool:
    """Java's NaN and infinities are no JSON: ours are no value."""
    if isinstance(value, dict | list):
        return all(map(is_json, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or isfinite(value)


def has_order(chain: list[dict[str, Any]]) -> bool:
    """Whether Java's order of keys is more than chance: `default` and `cardinality` walk hash sets. What
    is in some order by chance, a later operation can turn into other values."""
    return not any(entry["operation"] in ("default", "cardinality") for entry in chain)


def _is_shared_in_java(task: dict[str, Any]) -> bool:
    """Whether Java may put one constant of the spec, or one part of the context, at several places: what
    changes one of them changes all, and the spec or context itself. Ours stay as they are. What `sort`
    gives is no list to Java's other functions, and the lists of `split` and `toList` cannot be squashed."""
    specs = [json.dumps(entry["spec"]) for entry in task["spec"]]
    text = "".join(specs)
    if text.count("^") > 1 or "=sort" in text:
        return True
    if "quash" in text and any(name in text for name in ("=toList", "=split")):
        return True
    return any("{}" in spec or "[]" in spec for spec in specs[:-1])


def ordered(value: Any) -> Any:
    """A form in which the order of keys and the types of scalars count."""
    if isinstance(value, dict):
        return [(key, ordered(below)) for key, below in value.items()]
    if isinstance(value, list):
        return [None, *map(ordered, value)]
    return type(value).__name__, value


def _short(answer: dict[str, Any]) -> str:
    shown = str(answer.get("output", answer))
    return shown if len(shown) < 300 else shown[:300] + "…"
