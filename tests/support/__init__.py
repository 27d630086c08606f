"""What tests and benchmarks share: launchers of servers."""
