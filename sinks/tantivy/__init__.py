"""The embedded profile index, in tantivy."""
