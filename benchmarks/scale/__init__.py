"""What an event costs as things grow, and what breaks first."""
