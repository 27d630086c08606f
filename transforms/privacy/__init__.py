"""Sealing, data keys, blind index, rotation."""
