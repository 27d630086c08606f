"""The stages that an event passes, as plain Python."""
