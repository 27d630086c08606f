"""`[metrics]` of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class MetricsSettings(BaseModel):
    """Where a running flow serves its metrics and health."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of `/metrics`, `/health/live` and `/health/ready` while the flow runs. Default: none of them.",
    )
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on. What is served there holds no values, and asks for no password.",
    )
