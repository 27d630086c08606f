"""Mapping specs as versions."""
