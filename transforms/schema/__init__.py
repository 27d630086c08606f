"""The unified schema: policy by attribute, the diff of an event against it, detection."""
