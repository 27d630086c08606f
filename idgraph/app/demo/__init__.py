"""`idgraph demo`."""
