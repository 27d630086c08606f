"""JSON documents that people write, read with the place of each mistake."""
