"""Persons out of identifiers: evidence, rules, and the pure function that partitions a component."""
