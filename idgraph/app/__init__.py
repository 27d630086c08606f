"""The composition root: settings, wiring, command line. The only place that wires adapters."""

OURS = ("idgraph", "ingestion", "merge", "metadata_service", "profile_service", "sinks", "transforms")
