"""Python functions made from specs: the nodes they are built of, the names they use, and the check of both."""
