"""Proposals: a detector's findings about an undeclared attribute, for an admin to decide."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from idgraph.model.classification import Classification


class SensitiveKind(StrEnum):
    """Kinds of personal or secret data."""

    EMAIL = "email"
    PHONE = "phone"
    PAYMENT_CARD = "payment_card"
    BANK_ACCOUNT = "bank_account"
    NATIONAL_ID = "national_id"
    STREET_ADDRESS = "street_address"
    DATE_OF_BIRTH = "date_of_birth"
    ADVERTISING_ID = "advertising_id"
    DEMOGRAPHIC = "demographic"
    IP_ADDRESS = "ip_address"
    GEOLOCATION = "geolocation"
    SECRET = "secret"  # noqa: S105 - the name of a kind


class Proposal(BaseModel):
    """A classification with its kind, reason and confidence (0 to 1). Contains nothing of any value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: SensitiveKind
    classification: Classification
    reason: str = Field(min_length=1, max_length=200)
    confidence: float = Field(ge=0, le=1)

    def is_stronger(self, other: Proposal | None) -> bool:
        """Whether this one replaces another. A total order, so the order of proposals does not matter."""
        return other is None or self._strength() > other._strength()

    def _strength(self) -> tuple[int, float, str, str]:
        return self.classification.sensitivity, self.confidence, self.kind, self.reason
