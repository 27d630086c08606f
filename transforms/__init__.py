"""Pure: the mapping language and its compiler, schema diff, encryption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transforms.spec.compiler import compile_spec

__all__ = ["compile_spec"]


def __getattr__(name: str) -> Any:
    # Late: whoever imports one module of this package does not load the compiler.
    if name == "compile_spec":
        from transforms.spec.compiler import compile_spec

        return compile_spec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
