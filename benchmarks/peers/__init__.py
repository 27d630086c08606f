"""What others reach on the same rows in the same run."""
