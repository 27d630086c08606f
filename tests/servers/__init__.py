"""Real servers for the tests, started on free ports, with their data in temporary folders."""
