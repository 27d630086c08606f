"""Stores in DynamoDB."""
