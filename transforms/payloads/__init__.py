"""Payloads that are no JSON, as JSON: Avro and Protobuf, each by the schema that it was written with."""
