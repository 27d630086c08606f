"""Benchmarks: every figure beside its peer or limit, measured in the same run. `make bench` runs them."""
