"""Pure: the mapping language and its compiler, schema diff, encryption."""
