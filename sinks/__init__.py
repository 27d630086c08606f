"""Adapters at the edge: stores, indexes, key providers, dead letters, the metadata service."""
