"""Results of peers on the same rows in the same run."""
