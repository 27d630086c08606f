"""Apache Pulsar, by its client and its admin REST interface."""
