"""Reports of a running flow: metrics, health, structured logs."""
