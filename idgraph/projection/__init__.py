"""From the outbox to documents of the index."""
