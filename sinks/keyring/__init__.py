"""Keys in a keyring file."""
