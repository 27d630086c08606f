"""`[keys]` of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from idgraph.app.settings.urls import without_credentials


class KeySettings(BaseModel):
    """What wraps the keys of the keyring, and what happens without it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["file", "kms"] = Field(
        default="file",
        description="`file`: the keyring holds the keys themselves. `kms`: it holds them encrypted by AWS KMS (see "
        "[security.md](security.md#keys-in-aws-kms)).",
    )
    kms_key: str | None = Field(default=None, min_length=1, description="ARN or id of the KMS key.")
    region: str | None = Field(default=None, description="AWS region of the KMS key.")
    endpoint: Annotated[str | None, AfterValidator(lambda url: url and without_credentials(url))] = Field(
        default=None, description="URL of another KMS than the region's own."
    )
    cache_seconds: float = Field(
        default=300.0, gt=0, description="How long a process uses a key before it asks KMS for it again."
    )
    cache_uses: int = Field(
        default=1_000_000,
        ge=1,
        description="For how many data keys a process uses a key before it asks KMS again.",
    )
    retry_seconds: float = Field(
        default=10.0,
        ge=0,
        description="For how long KMS is asked again when it throttles or does not answer.",
    )

    @model_validator(mode="after")
    def _has_place(self) -> KeySettings:
        if self.kind == "kms" and not (self.kms_key and self.region):
            raise ValueError("KMS needs a `kms_key` and its `region`, for instance eu-central-1")
        return self
