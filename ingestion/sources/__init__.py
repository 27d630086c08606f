"""Where records come from: streams, envelopes, offsets."""
