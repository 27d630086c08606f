"""What an editor of specs offers while one types."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from metadata_service.api.service import Service
from metadata_service.specs.vocabulary import CompletionList, WordKind, completions

router = APIRouter(prefix="/v1/completions", tags=["specs"])


@router.get("")
def complete(
    service: Service,
    kind: WordKind,
    q: Annotated[str, Query(max_length=1024, description="How the word begins.")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> CompletionList:
    """Operations, functions with a line of help, or known attribute paths, that begin so."""
    with service.database.read() as session:
        return completions(session, kind, q, limit)
