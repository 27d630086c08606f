"""JMESPath expressions, compiled to Python functions."""

from transforms.expressions.analysis import paths_read
from transforms.expressions.compilation import Expression, compile_expression
from transforms.expressions.expression_code import ExpressionCode

__all__ = ["Expression", "ExpressionCode", "compile_expression", "paths_read"]
