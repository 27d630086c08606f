"""Services over HTTP."""
