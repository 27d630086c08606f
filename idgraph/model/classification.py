"""Classification levels, with the defaults of each for attributes, and what a detector proposes of an attribute."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from idgraph.model.documents import FrozenDocument


class SealedValue(NamedTuple):
    """`ciphertext` is base64 text; two `token`s of one attribute are equal if their values are."""

    ciphertext: str
    token: str | None = None

    def __str__(self) -> str:
        return self.ciphertext if self.token is None else f"{self.ciphertext}.{self.token}"

    @classmethod
    def parse(cls, text: str) -> SealedValue:
        ciphertext, _, token = text.partition(".")
        return cls(ciphertext, token or None)


class Classification(StrEnum):
    """Sensitivity of an attribute, from least to most."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"

    @property
    def sensitivity(self) -> int:
        """Higher is more sensitive."""
        return _SENSITIVITY.index(self)


_SENSITIVITY = tuple(Classification)


class EncryptionLevel(StrEnum):
    """`protected` values are sealed; `searchable` ones are sealed and have a blind index for equality."""

    NONE = "none"
    PROTECTED = "protected"
    SEARCHABLE = "searchable"

    @property
    def strictness(self) -> int:
        """Higher reveals less: tokens reveal which values are equal."""
        return _STRICTNESS.index(self)


_STRICTNESS = (EncryptionLevel.NONE, EncryptionLevel.SEARCHABLE, EncryptionLevel.PROTECTED)


class LevelPolicy(FrozenDocument):
    """The defaults of a level. A reader needs the clearance `authorization_level` (0 to 100). `indexable` concerns
    plaintext: of a sealed value the index has at most a token."""

    encryption: EncryptionLevel = EncryptionLevel.NONE
    indexable: bool = True
    authorization_level: int = Field(default=0, ge=0, le=100)

    @property
    def is_protected(self) -> bool:
        return self.encryption is not EncryptionLevel.NONE


class ClassificationLevels(FrozenDocument):
    """The policy of every level. An attribute can override each field."""

    public: LevelPolicy = LevelPolicy()
    internal: LevelPolicy = LevelPolicy()
    confidential: LevelPolicy = LevelPolicy(encryption=EncryptionLevel.PROTECTED, authorization_level=50)
    restricted: LevelPolicy = LevelPolicy(
        encryption=EncryptionLevel.PROTECTED, indexable=False, authorization_level=80
    )

    def policy(self, classification: Classification) -> LevelPolicy:
        """The policy of one level."""
        found = getattr(self, classification.value)
        assert isinstance(found, LevelPolicy)  # noqa: S101 - each level has a field
        return found

    def unstated(self, stated: BaseModel, classification: Classification) -> dict[str, Any]:
        """The fields of the level's policy that `stated` leaves out."""
        return {
            field: value
            for field, value in self.policy(classification)
            if field not in stated.model_fields_set
        }


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


class Proposal(FrozenDocument):
    """A classification with its kind, reason and confidence (0 to 1). Contains nothing of any value."""

    kind: SensitiveKind
    classification: Classification
    reason: str = Field(min_length=1, max_length=200)
    confidence: float = Field(ge=0, le=1)

    def is_stronger(self, other: Proposal | None) -> bool:
        """Whether this one replaces another. A total order, so the order of proposals does not matter."""
        return other is None or self._strength() > other._strength()

    def _strength(self) -> tuple[int, float, str, str]:
        return self.classification.sensitivity, self.confidence, self.kind, self.reason
