"""What a running flow tells of itself: metrics, health, structured logs."""
