"""What Spark says of the task that runs in this process."""

from __future__ import annotations


def is_task_given_again() -> bool:
    """Whether Spark gives it again: an executor was lost under it."""
    # Here, so that the stages are loaded where there is no Spark.
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
