"""What a detector's proposal makes of an attribute that no admin decided on, and what an admin's decision does."""

from __future__ import annotations

from typing import Literal

from sqlalchemy.orm import Session

from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, AttributeStatus
from idgraph.model.classification import Classification, ClassificationLevels, EncryptionLevel
from idgraph.model.proposals import Proposal
from idgraph.web.refusals import ClashError
from metadata_service.attributes.catalogue import get_attribute
from metadata_service.attributes.levels import classification_levels
from transforms.schema.attribute_nodes import policy_of

Verdict = Literal["confirm", "refuse"]


def with_proposal(
    attribute: AttributeMetadata, proposal: Proposal, levels: ClassificationLevels | None
) -> AttributeMetadata:
    """The attribute with a stronger proposal, treated as its level says if there are `levels`; the same
    object if an admin decided already or a proposal at least as strong is known.

    Nothing that held becomes weaker. The version is the caller's.
    """
    if attribute.status is not AttributeStatus.DISCOVERED or not proposal.is_stronger(attribute.proposal):
        return attribute
    update: dict[str, object] = {"proposal": proposal}
    if levels is not None:
        policy = policy_of(attribute).stricter(policy_of(levels.policy(proposal.classification)))
        opened = not attribute.is_protected or attribute.sealed_for_review
        update |= policy._asdict()
        update["sealed_for_review"] = opened and policy.is_protected
        update["classification"] = _more_sensitive(attribute.classification, proposal.classification)
    return attribute.model_copy(update=update)


def decided(session: Session, path: str, verdict: Verdict) -> AttributeDefinition:
    """The definition that an admin's decision on a proposal makes: as strict as the attribute is and its proposal's
    level says, or open. Raises UnknownSubjectError, ClashError where no proposal waits."""
    attribute = AttributeMetadata.model_validate_json(get_attribute(session, path))
    proposal = attribute.proposal
    if attribute.status is not AttributeStatus.DISCOVERED or proposal is None:
        raise ClashError("no proposal waits for a decision on this attribute")
    stated = {field: getattr(attribute, field) for field in AttributeDefinition.model_fields}
    stated["status"] = AttributeStatus.ACTIVE
    if verdict == "refuse":
        return AttributeDefinition(**stated | _OPEN)
    level = classification_levels(session).policy(proposal.classification)
    stated |= policy_of(attribute).stricter(policy_of(level))._asdict()
    stated["classification"] = _more_sensitive(attribute.classification, proposal.classification)
    return AttributeDefinition(**stated)


def _more_sensitive(one: Classification, other: Classification) -> Classification:
    return max(one, other, key=lambda level: level.sensitivity)


_OPEN = {
    "classification": Classification.INTERNAL,
    "encryption": EncryptionLevel.NONE,
    "indexable": True,
    "authorization_level": 0,
}
