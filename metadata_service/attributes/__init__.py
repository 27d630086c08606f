"""Attribute metadata: rules, levels, discovery, policy changes."""
