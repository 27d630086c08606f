"""Sandboxes as the metadata service gives them, and what differs between one and production."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from idgraph.model.documents import FrozenDocument, StrictDocument

NAME_OF_SANDBOX = r"^[a-z0-9][a-z0-9-]{0,39}$"
"""It is the name of a folder."""

ItemKind = Literal[
    "classification_levels",
    "discovery_defaults",
    "attribute",
    "spec",
    "identity_rules",
    "view",
    "segment",
    "activity",
    "derived_attribute",
    "trigger",
]


class SandboxRecord(BaseModel):
    """A named copy of the metadata."""

    name: str
    reason: str
    actor: str
    at: datetime
    snapshot_version: int = Field(description="The snapshot of production that was copied.")
    copied_version: int = Field(description="The snapshot of the sandbox that has the copy.")
    number: int = Field(ge=1, description="Its ports are those of production and a hundred times this.")


class SandboxList(BaseModel):
    """All sandboxes, by name."""

    items: list[SandboxRecord]


class NewSandbox(StrictDocument):
    """A sandbox to be made."""

    name: str = Field(pattern=NAME_OF_SANDBOX)
    reason: str = Field(default="", max_length=1000)


class SandboxItem(FrozenDocument):
    """One thing that people decide: `name` is a path, or empty for what there is once."""

    kind: ItemKind
    name: str = Field(default="", max_length=1024)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind.replace("_", " "), self.name)))


class SandboxDifference(BaseModel):
    """An item whose content is not that of production. `added` and `changed` are edits of the sandbox, `behind` is one of
    production, and of a `conflict` both edited the same item since the copy."""

    kind: ItemKind
    name: str
    state: Literal["added", "changed", "behind", "conflict"]
    weakens: list[str] = Field(
        description="The attributes that promoting it opens; a second person must agree."
    )
    production: dict[str, Any] | None = Field(description="Absent from production: null.")
    sandbox: dict[str, Any] | None

    @property
    def item(self) -> SandboxItem:
        return SandboxItem(kind=self.kind, name=self.name)

    @property
    def is_promotable(self) -> bool:
        return self.state in ("added", "changed")


class SandboxComparison(BaseModel):
    """The differences, in the order in which they are promoted. Attributes that nobody decided on are left out."""

    sandbox: SandboxRecord
    production_version: int
    sandbox_version: int
    items: list[SandboxDifference]


class SandboxFlow(BaseModel):
    """A flow as it last reported; `is_running` if that was just now."""

    name: str
    state: str
    is_running: bool
    events_per_second: float


class SandboxSide(BaseModel):
    """The stores of one side, and the flows that fill them."""

    fragments: int
    dead_letters: int
    flows: list[SandboxFlow]


class SandboxActivity(BaseModel):
    """Both sides; null for one that has no profiles on this machine yet."""

    production: SandboxSide | None
    sandbox: SandboxSide | None


class SandboxPromotion(StrictDocument):
    """The differences to publish; without `items` all edits of the sandbox that weaken no protection."""

    items: list[SandboxItem] | None = Field(default=None, min_length=1, max_length=1000)
    reason: str = Field(default="", max_length=1000)
    dry_run: bool = False


class PromotedItem(BaseModel):
    """The outcome for one: `waits` for a second person; `refused` for the reason in `detail`; `planned` in a dry
    run."""

    kind: ItemKind
    name: str
    outcome: Literal["published", "waits", "refused", "planned"]
    detail: str = ""


class PromotedList(BaseModel):
    """The outcome for each, in the order in which they were published."""

    items: list[PromotedItem]
