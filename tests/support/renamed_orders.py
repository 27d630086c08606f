"""Orders of persons whose e-mail addresses, by which they are stored, policy protects afterwards."""

from __future__ import annotations

from idgraph.model.events import RawRecord
from idgraph.model.identifiers import Identifier
from tests.retail import UNDETECTED, Pipeline, attribute, order, snapshot

# The person's name is sealed from the start, so that there is something under the old fragment's data key.
BEFORE = snapshot(
    1,
    declared=[attribute("identity.email"), attribute("identity.name", encryption="protected")],
    defaults=UNDETECTED,
)
AFTER = snapshot(2)
PLAIN = "email:p1@example.com"
OTHER = "email:p2@example.com"


def hashed(pipeline: Pipeline, name: str = PLAIN) -> str:
    """What becomes of a name."""
    return str(pipeline.blind_index.identifier(Identifier.parse(name)))


def later(number: int = 7) -> RawRecord:
    """A later order of the first person."""
    return order(1, number, created_at=f"2024-03-0{number}T00:00:00Z", order_id=f"R{number}")
