"""JMESPath expressions, compiled to Python functions."""

from transforms.spec.jmespath.compilation import Expression, compile_expression
from transforms.spec.jmespath.expression_code import ExpressionCode
from transforms.spec.jmespath.growth import paths_read

__all__ = ["Expression", "ExpressionCode", "compile_expression", "paths_read"]
