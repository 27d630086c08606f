"""Mapping specs: compiled once, applied to each payload."""
