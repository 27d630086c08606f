"""`idgraph.toml`: typed, validated, each mistake with its place."""
