"""The composition root: settings, wiring, command line. The only place that wires adapters."""
