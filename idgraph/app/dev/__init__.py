"""`idgraph dev`: the production shape on one machine."""
