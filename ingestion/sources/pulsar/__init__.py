"""Pulsar topics as a source."""
