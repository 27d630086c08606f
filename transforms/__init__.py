"""Pure: the mapping language and its compiler, schema diff, encryption."""

from transforms.compiler import compile_spec

__all__ = ["compile_spec"]
