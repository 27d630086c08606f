"""The embedded index."""
