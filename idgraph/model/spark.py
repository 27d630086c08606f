"""Configuration of Spark beyond one machine: how executors get their code, and further options."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from idgraph.model.documents import SettingsTable

REFUSED = {
    "spark.master": "it is `[flow] master`",
    "spark.app.name": "it is `[flow] name`",
    "spark.driver.memory": "it is `[flow] driver_memory`",
    "spark.sql.shuffle.partitions": "it is `[flow] partitions`",
    "spark.sql.files.maxPartitionBytes": "it is `[flow] split_bytes`",
    "spark.driver.host": "it is `[spark] driver_host`",
    "spark.archives": "it is `[spark] archive`",
    "spark.pyspark.python": "it is `[spark] python`",
    "spark.network.crypto.enabled": "it is on wherever spark.authenticate is",
    "spark.executorEnv.PYTHONPATH": "it is where `[spark] archive` is unpacked",
    "spark.executorEnv.PYTHONSAFEPATH": "workers would look for our packages in the current folder first",
    "spark.executorEnv.LC_ALL": "files whose names are not ASCII could not be opened under another one",
    "spark.sql.adaptive.enabled": "it would run each side of the shuffle as a job of its own",
    "spark.io.encryption.enabled": "shuffle blocks are sealed, and on a cluster encrypted as well",
    "spark.shuffle.compress": "shuffle blocks are sealed, and become no smaller",
    "spark.speculation": "two runs of one task at once only get in each other's way",
    "spark.local.dir": "it is below the flow's state; on executors it is theirs to say (SPARK_LOCAL_DIRS)",
}
"""Options that idgraph sets itself, and why."""

_SECRET = re.compile(r"(?i)secret|password|token|key")


class SparkSettings(SettingsTable):
    """Spark's executors, when `[flow] master` is a cluster ([cluster.md](cluster.md)), and when it is used beside a flow."""

    driver_host: str | None = Field(
        default=None,
        description="The driver's address for executors. Default: its machine's name.",
    )
    archive: Path | None = Field(
        default=None,
        description="Archive of `idgraph package` for the executors. Without it, install idgraph for `python` on each "
        "machine.",
    )
    python: str = Field(
        default="python3",
        min_length=1,
        description="Path of Python on the executors, of the driver's minor version.",
    )
    shared_files: bool = Field(
        default=False,
        description="All executors see the folders of file sources under the same paths.",
    )
    preview_from: int = Field(
        default=300_000,
        ge=1,
        description="Fragments from which on `idgraph rules preview` uses Spark, and labels from which on `idgraph features` does.",
    )
    options: dict[str, SecretStr] = Field(
        default={}, description="Further options of Spark, such as `spark.executor.memory`."
    )

    @field_validator("options")
    @classmethod
    def _leaves_ours(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name in options:
            if not name.startswith("spark."):
                raise ValueError(f"{name} is no option of Spark, whose names begin with spark.")
            if reason := REFUSED.get(name):
                raise ValueError(f"{name} cannot be set: {reason}")
        return options

    def without_secrets(self, text: str) -> str:
        """The text without secret values of options; Spark's error messages can contain them."""
        for name, value in self.options.items():
            if _SECRET.search(name) and (secret := value.get_secret_value()):
                text = text.replace(secret, "...")
        return text


def is_local(master: str) -> bool:
    """Whether executors are threads of the driver's own JVM, on its machine."""
    return re.match(r"local(\[|$)", master) is not None
