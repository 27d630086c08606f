"""Sources, flows, micro-batch: the way of an event. The only package that imports pyspark."""
