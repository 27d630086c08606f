"""The paths that an expression reads."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def expression_sources(expression: str) -> frozenset[str]:
    """The paths at or below which all stands that an expression reads; the empty one: anywhere. Raises SpecError."""
    from transforms.spec.jmespath.operation import all_sources

    return frozenset(all_sources({"value": expression}))
