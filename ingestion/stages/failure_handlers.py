"""Which handler decides what becomes of changes that cannot be committed: by name, entry point or place in the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from idgraph.model.errors import ConfigError, FlowStoppedError
from merge.failures import CommitFailure, FailureHandler, Verdict, set_aside, stop

ENTRY_POINTS = "idgraph.failure_handlers"

BUILT_IN: dict[str, FailureHandler] = {"dead_letter": set_aside, "stop": stop}


def failure_handler(name: str) -> FailureHandler:
    """The handler of a `flow.on_failure`: a built-in one, an entry point, or `module:name`. Of a class an instance is
    made, without arguments. Raises ConfigError that names the key."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    try:
        found = _of_place(name) if ":" in name else _of_entry_point(name)
        handler: Callable[..., Any] = found() if isinstance(found, type) else found
    except Exception as error:
        raise ConfigError(f"flow.on_failure: {name}: {type(error).__name__}: {error}") from None
    if not callable(handler):
        raise ConfigError(f"flow.on_failure: {name}: is not callable")
    return handler


def _of_place(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _of_entry_point(name: str) -> Any:
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return point.load()
    known = sorted({*BUILT_IN, *entry_points(group=ENTRY_POINTS).names})
    raise LookupError(f"there is no such handler (known: {', '.join(known)}); or give module:name")


def to_set_aside(handler: FailureHandler, failures: Iterable[CommitFailure]) -> list[CommitFailure]:
    """Ask what is to become of each; gives those that are to be set aside. Raises FlowStoppedError when one is to
    stop the flow."""
    kept = []
    for failure in failures:
        match handler(failure):
            case Verdict.SET_ASIDE:
                kept.append(failure)
            case Verdict.TAKEN:
                continue
            case _:
                raise FlowStoppedError(
                    f"{failure.fragment_id} cannot be committed ({failure.reason}: {failure.detail}), and "
                    "flow.on_failure says to stop. The micro-batch is not marked done and will be read again"
                )
    return kept
