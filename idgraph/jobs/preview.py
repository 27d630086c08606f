"""Previews: the effect of identity rules on the stored profiles, or of a mapping spec on its source's
events."""

from __future__ import annotations

from idgraph.jobs import rules_preview
from idgraph.jobs.kind import JobContext
from idgraph.jobs.rules_preview import RulesPreview, RulesPreviewParameters
from idgraph.jobs.spec_preview.job import SpecPreviewJob, SpecPreviewParameters
from idgraph.model.callers import Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.jobs import JobType


class PreviewParameters(StrictDocument):
    """One of the two."""

    rules: RulesPreviewParameters | None = None
    spec: SpecPreviewParameters | None = None


def _prepare(parameters: PreviewParameters, context: JobContext) -> RulesPreview | SpecPreviewJob | None:
    if parameters.rules is not None:
        return rules_preview.prepare(parameters.rules, context)
    return None if parameters.spec is None else SpecPreviewJob(parameters.spec, context)


PREVIEW = JobType(
    "compares identity rules, or a mapping spec, with what is in force",
    "idgraph rules preview, idgraph specs preview",
    PreviewParameters,
    _prepare,
    request="POST /v1/identity-rules/previews, POST /v1/specs/previews",
    scope=Scope.RULES,
)
