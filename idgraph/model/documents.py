"""Base classes of documents: none takes a member that it does not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictDocument(BaseModel):
    """Refuses unknown members."""

    model_config = ConfigDict(extra="forbid")


class FrozenDocument(BaseModel):
    """Refuses unknown members, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SettingsTable(BaseModel):
    """The same as a table of the configuration: its numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
