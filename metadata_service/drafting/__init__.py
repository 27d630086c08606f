"""Drafts of mapping specs from sample events: what each leaf is, where it belongs, and why."""
