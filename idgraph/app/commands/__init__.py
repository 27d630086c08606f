"""One module for each group of commands; `idgraph.app.cli` puts them together."""
