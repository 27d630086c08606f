"""Hostile specs and payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from idgraph.model.errors import TransformError

CPU_SECONDS = 15
"""After which the system ends the process: what is bounded takes less than a third on a slow machine, the rest hours."""


class Attack(NamedTuple):
    """A spec and what makes the payload; `error` is the kind that must come, at `pointer`. None: it ends well."""

    spec: Callable[[], Any]
    payload: Callable[[], Any]
    pointer: str
    error: type[Exception] | None = TransformError


def on(
    operation: str, spec: Any, payload: Callable[[], Any], error: type[Exception] | None = TransformError
) -> Attack:
    """An attack of one operation."""
    return Attack(lambda: {"operation": operation, "spec": spec}, payload, "", error)
