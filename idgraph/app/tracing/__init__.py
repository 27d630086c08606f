"""`idgraph map --trace`: what each operation of a spec does to a payload."""
