"""Detectors: what looks like personal data or a secret, by an attribute's name and by one value's shape.

Pure: an answer depends on the path and the one value alone, never on what came before (law 1).
"""
