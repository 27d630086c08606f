"""The metadata snapshot on its way in, schema updates on their way out."""
