"""The REST interface of profiles."""
