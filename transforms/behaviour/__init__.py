"""Attributes that are pure functions of a person's attributes and timelines at a moment."""
