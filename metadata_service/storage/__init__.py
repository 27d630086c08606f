"""The database: tables, edits, history, snapshots."""
