"""Bringing stored values and identifiers under the protection that policy demands today."""
