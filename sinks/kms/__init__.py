"""Keys wrapped by AWS KMS."""
