"""What a detector's proposal makes of an attribute that no admin decided on."""

from __future__ import annotations

from model.attributes import AttributeMetadata, AttributeStatus
from model.classification import Classification, ClassificationLevels
from model.proposals import Proposal
from transforms.schema import policy_of

_SENSITIVITY = list(Classification)


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
        update["classification"] = max(
            attribute.classification, proposal.classification, key=_SENSITIVITY.index
        )
    return attribute.model_copy(update=update)
