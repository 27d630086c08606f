"""The parts that both REST services share."""
