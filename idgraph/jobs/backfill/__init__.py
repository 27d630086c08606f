"""An archive of one source through the stages, beside the flow."""
