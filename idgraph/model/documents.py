"""Base classes of documents: none takes a member that it does not know."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StrictDocument(BaseModel):
    """Refuses unknown members."""

    model_config = ConfigDict(extra="forbid")


class FrozenDocument(BaseModel):
    """Refuses unknown members, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SettingsTable(BaseModel):
    """The same as a table of the configuration: its numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}$"
TOPIC_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._\-/]{0,248}$"


class Definition(FrozenDocument):
    """The common fields of what admins define under a name. A retired one exists for its history only."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = Field(default="", max_length=4000)
    status: Literal["active", "retired"] = "active"
