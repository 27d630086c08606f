"""JMESPath expressions, compiled to Python functions."""
