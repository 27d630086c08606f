"""Jolt's notation and values: path elements, references, walked levels, text and number semantics."""
