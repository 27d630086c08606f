"""Jars that idgraph does not bring along, out of Maven Central: Spark's Kafka connector, and servers for tests.

What is fetched is pinned: the list of files with their SHA-256 lies beside these modules.
"""
