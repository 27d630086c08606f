"""Sources of records: streams, envelopes, offsets."""
