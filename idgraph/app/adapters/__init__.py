"""The adapter behind each protocol."""
