"""idgraph: one private profile per person, out of events from many systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idgraph.model.errors import IdgraphError, SpecError, TransformError

if TYPE_CHECKING:
    from transforms.spec.compiler import compile_spec

__all__ = ["IdgraphError", "SpecError", "TransformError", "compile_spec"]


def __getattr__(name: str) -> Any:
    # Late: importing idgraph does not load the compiler.
    if name == "compile_spec":
        from transforms.spec.compiler import compile_spec

        return compile_spec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
