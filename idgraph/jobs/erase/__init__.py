"""Erasing persons from everything that idgraph keeps."""
