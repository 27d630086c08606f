"""Spark as the shell of the stages: session, query, micro-batch, tasks, checkpoints."""
