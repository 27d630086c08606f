"""Owns specs and attribute metadata as versions, behind REST."""
