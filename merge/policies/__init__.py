"""The reconciliation policies other than `latest`: what each keeps at a path, and what value shows of it."""

from __future__ import annotations

from idgraph.model.attributes import ReconciliationPolicy
from merge.policies.extremes import First, Maximum, Minimum, SourcePriority
from merge.policies.lists import Append, Count, Sum, Union
from merge.policies.policy import Policy

__all__ = ["POLICIES", "Policy"]

POLICIES: dict[ReconciliationPolicy, Policy] = {
    ReconciliationPolicy.FIRST: First(),
    ReconciliationPolicy.MAX: Maximum(),
    ReconciliationPolicy.MIN: Minimum(),
    ReconciliationPolicy.UNION: Union(),
    ReconciliationPolicy.APPEND: Append(),
    ReconciliationPolicy.SUM: Sum(),
    ReconciliationPolicy.COUNT: Count(),
    ReconciliationPolicy.SOURCE_PRIORITY: SourcePriority(),
}
"""Every policy but `latest`, which the registers of a fragment carry out themselves."""
