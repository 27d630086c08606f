"""The embedded stores: SQLite files."""
