"""What a running flow reports itself: metrics, health, structured logs."""
