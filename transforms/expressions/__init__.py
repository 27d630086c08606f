"""JMESPath expressions, compiled to Python functions."""

from transforms.expressions.compilation import Expression, compile_expression

__all__ = ["Expression", "compile_expression"]
