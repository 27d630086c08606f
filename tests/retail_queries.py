"""Searches that any index of the retail example answers alike."""

from __future__ import annotations

from idgraph.model.queries import FullText, Prefix, Query, Range, Term

QUERIES = [
    Query(),
    Query((Term("activity.lastEvent", "Purchase"),)),
    Query((Prefix("activity.lastEvent", "P"), Range("activity.purchase.total", 100))),
    Query((Range("activity.lastSeenAt", 1_000_000_000_000, 1_709_300_000_000),)),
    Query((Range("activity.lastEvent", "B", "Q", include_upper=False),)),
    Query((FullText("purchase"),)),
    Query((FullText("ios", "activity.platform"),)),
    Query((FullText("purchase"), Term("activity.platform", "ios"))),
    Query((Term("activity.nothing", 1),)),
]
