"""Identity events as people write them: what a simulation of the rules takes in place of a source's records."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from idgraph.model.documents import FrozenDocument
from idgraph.model.identity_rules import IdentityRules, NamespaceName, Strength

Text = Annotated[str, Field(min_length=1, max_length=2048)]
Named = tuple[NamespaceName, Annotated[str, Field(max_length=2048)]]
"""A namespace and a value, not normalised."""


class IdentityEvent(FrozenDocument):
    """The identifiers that one event shows. (source, id) identifies it: a second delivery is the same event.

    `links` are the pairs that are evidence, every pair where it is absent. `retracts` names, in place of `ids`, an
    event of the same source that is taken back: it has never been.
    """

    id: Text
    t: AwareDatetime
    source: Text
    ids: tuple[Named, ...] = ()
    links: tuple[tuple[Named, Named], ...] | None = None
    strength: Strength | None = None
    retracts: Text | None = None

    @model_validator(mode="after")
    def _shows_or_retracts(self) -> Self:
        if self.retracts is not None and (self.ids or self.links):
            raise ValueError("an event that retracts another shows no identifiers")
        if self.retracts is None and not self.ids:
            raise ValueError("give `ids`, or `retracts`")
        return self


class PinDocument(FrozenDocument):
    """A person's decision on two identifiers."""

    pair: tuple[Named, Named]
    decision: Literal["always", "never", "none"]
    t: AwareDatetime
    who: str = ""
    why: str = ""


class Simulated(BaseModel):
    """Rules, events and pins in one document, as the acceptance cases have them; whatever else it holds is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    rules: IdentityRules
    events: tuple[IdentityEvent, ...]
    pins: tuple[PinDocument, ...] = ()
