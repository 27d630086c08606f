"""Shared by tests and benchmarks: launchers of servers."""
