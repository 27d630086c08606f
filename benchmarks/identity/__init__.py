"""`make bench ARGS=identity`: how well persons are found, and how fast."""
