"""Classification levels, and what each means where an attribute says nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field


class SealedValue(NamedTuple):
    """`ciphertext` is base64 text; `token` equals another token of the attribute when the values do."""

    ciphertext: str
    token: str | None = None

    def __str__(self) -> str:
        return self.ciphertext if self.token is None else f"{self.ciphertext}.{self.token}"

    @classmethod
    def parse(cls, text: str) -> SealedValue:
        ciphertext, _, token = text.partition(".")
        return cls(ciphertext, token or None)


class Classification(StrEnum):
    """How sensitive an attribute is, from least to most."""

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
        """Higher shows less: a token reports which values are equal."""
        return _STRICTNESS.index(self)


_STRICTNESS = (EncryptionLevel.NONE, EncryptionLevel.SEARCHABLE, EncryptionLevel.PROTECTED)


class LevelPolicy(BaseModel):
    """What a level means. `authorization_level` is the clearance (0 to 100) a reader needs; `indexable` is
    about plaintext: of a sealed value the index holds at most a token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encryption: EncryptionLevel = EncryptionLevel.NONE
    indexable: bool = True
    authorization_level: int = Field(default=0, ge=0, le=100)

    @property
    def is_protected(self) -> bool:
        return self.encryption is not EncryptionLevel.NONE


class ClassificationLevels(BaseModel):
    """The policy of every level. An attribute overrides each field of it for itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    public: LevelPolicy = LevelPolicy()
    internal: LevelPolicy = LevelPolicy()
    confidential: LevelPolicy = LevelPolicy(encryption=EncryptionLevel.PROTECTED, authorization_level=50)
    restricted: LevelPolicy = LevelPolicy(
        encryption=EncryptionLevel.PROTECTED, indexable=False, authorization_level=80
    )

    def policy(self, classification: Classification) -> LevelPolicy:
        """What one level means."""
        found = getattr(self, classification.value)
        assert isinstance(found, LevelPolicy)  # noqa: S101 - there is a field for each level
        return found

    def unstated(self, stated: BaseModel, classification: Classification) -> dict[str, Any]:
        """The fields of the level's policy that somebody left out."""
        return {
            field: value
            for field, value in self.policy(classification)
            if field not in stated.model_fields_set
        }
