"""Stores in memory, for tests and previews."""
