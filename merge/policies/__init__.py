"""The reconciliation policies other than `latest`: what each keeps at a path, and what value shows of it."""

from __future__ import annotations

from idgraph.model.attributes import ReconciliationPolicy
from merge.policies.append import Append
from merge.policies.count import Count
from merge.policies.first import First
from merge.policies.maximum import Maximum
from merge.policies.minimum import Minimum
from merge.policies.policy import Policy
from merge.policies.source_priority import SourcePriority
from merge.policies.sum import Sum
from merge.policies.union import Union

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
