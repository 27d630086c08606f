"""Which adapter stands behind which protocol."""
