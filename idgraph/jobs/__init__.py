"""Bounded work over many fragments: one module a job."""
