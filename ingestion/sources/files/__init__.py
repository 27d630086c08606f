"""JSON Lines files as a source."""
