"""What both REST services share."""
