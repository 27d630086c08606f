"""SharedIdentifiers by tests and benchmarks: launchers of servers."""
