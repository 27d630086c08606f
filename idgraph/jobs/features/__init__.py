"""Derived attributes as of the times of labels, for training; and whether look-ups served the same."""
