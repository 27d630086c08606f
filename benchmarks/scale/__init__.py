"""The cost of an event as things grow, and the first limits."""
