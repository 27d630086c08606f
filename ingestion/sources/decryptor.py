"""Configuration of what decrypts the records of a source that arrive encrypted."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class DecryptorConfig(BaseModel):
    """The HTTP service that decrypts the records of one source."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    url: str = Field(
        pattern=r"^https?://[^/@\s]+(/\S*)?$",
        description="Where the bytes of a record are sent by POST; the answer is what they say in the clear.",
    )
    capacity: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="Most records of a task that are with the service, or wait for one before them, at once.",
    )
    timeout_seconds: float = Field(default=5.0, gt=0, description="For one whole answer of the service.")
    retries: int = Field(
        default=5,
        ge=0,
        description="How often a record is retried, each time after a longer random pause of at most two seconds, "
        "when the service is away, slow, or says 408, 429 or 5xx.",
    )
    on_failure: Literal["stop", "dead_letter", "pass_on"] = Field(
        default="stop",
        description="What becomes of a record that is not decrypted in the end. `stop`: the micro-batch is retried, "
        "then the flow stops; one that the service refuses for good (400, 413, 422) is set aside. `dead_letter`: it is "
        "set aside as it arrived. `pass_on`: its spec is given it as it arrived, with the mark `^undecrypted`.",
    )
    token_file: Path | None = Field(
        default=None, description="File with a bearer token for the service, read by each worker."
    )
    ca_file: Path | None = Field(
        default=None, description="PEM file of the authorities to trust for https. Default: the system's."
    )

    @field_validator("url")
    @classmethod
    def _is_whole(cls, url: str) -> str:
        if url.partition("://")[2][:1] in ("", ":"):
            raise ValueError("not a URL of a service; it looks like https://HOST:PORT/PATH")
        return url
