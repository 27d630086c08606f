"""The merge: registers, fragments, optimistic commit, and the protocols of what it writes to."""
