"""One module for each group of commands; `app.cli` puts them together."""
