"""Serves profiles to product teams: lookup, search, export."""
