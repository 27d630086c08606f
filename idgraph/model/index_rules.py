"""What a metadata snapshot says of the index: which plaintext goes into it, and of which values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from idgraph.model.attributes import Reconciliation
from idgraph.model.fragments import LATEST_ONLY


class IndexRules(NamedTuple):
    """`is_indexable` answers for a path whether policy lets its plaintext into the index; `policies` are the
    reconciliation policies of paths that have another than `latest`.

    The same `is_indexable` always gives the same answers, so that they may be kept: where one changes it is another
    object."""

    is_indexable: Callable[[str], bool]
    policies: Mapping[str, Reconciliation] = LATEST_ONLY
