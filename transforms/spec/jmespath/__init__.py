"""JMESPath expressions, compiled to Python functions."""

from transforms.spec.jmespath.analysis import paths_read
from transforms.spec.jmespath.compilation import Expression, compile_expression
from transforms.spec.jmespath.expression_code import ExpressionCode

__all__ = ["Expression", "ExpressionCode", "compile_expression", "paths_read"]
