"""Identity rules as documents that people write."""
