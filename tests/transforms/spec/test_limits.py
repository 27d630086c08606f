"""The limits that a caller gives hold wherever a spec reaches: in functions, expressions and keys."""

from __future__ import annotations

from typing import Any

import pytest

from idgraph.model.errors import TransformError
from transforms import compile_spec
from transforms.spec.limits import SpecLimits

TEXT = "x" * 700
MODIFY = "modify-overwrite-beta"


@pytest.mark.parametrize(
    ("limits", "operation", "spec", "payload"),
    [
        (SpecLimits(max_text=600), MODIFY, {"a": "=toUpper"}, {"a": TEXT}),
        (SpecLimits(max_text=600), MODIFY, {"a": "=toUpper"}, {"a": [TEXT]}),
        (SpecLimits(max_text=600), MODIFY, {"a": "=concat(@(1,a),@(1,a))"}, {"a": TEXT[:400]}),
        (SpecLimits(max_text=600), MODIFY, {"a": "=join('-',@(1,a),@(1,a))"}, {"a": TEXT[:400]}),
        (SpecLimits(max_text=600), MODIFY, {"a": "=toString"}, {"a": {"b": [TEXT[:400]] * 2}}),
        (SpecLimits(max_text=600), MODIFY, {"a": "=size"}, {"a": TEXT}),
        (SpecLimits(max_text=600), MODIFY, {"a": "=split(',',@(1,a))"}, {"a": TEXT}),
        (SpecLimits(max_text=600), "jmespath", {"a": "lower(a)"}, {"a": TEXT}),
        (SpecLimits(max_text=600), "jmespath", {"a": "join('', [a, a])"}, {"a": TEXT[:400]}),
        (SpecLimits(max_text=600), "jmespath", {"a": "to_string(@)"}, {"a": [TEXT[:400]] * 2}),
        (SpecLimits(max_text=600), "jmespath", {"a": "hash(@)"}, {"a": [TEXT[:400]] * 2}),
        (SpecLimits(max_pattern_text=60), MODIFY, {"a": "=split('[,;]',@(1,a))"}, {"a": TEXT}),
        (SpecLimits(max_nodes=60), MODIFY, {"a": "=split(',',@(1,a))"}, {"a": ",a" * 300}),
        (SpecLimits(max_nodes=60), "jmespath", {"a": "split(',',a)"}, {"a": ",a" * 100}),
        (SpecLimits(max_steps=60), "jmespath", {"a": "a[*].b"}, {"a": [{}] * 100}),
        (SpecLimits(max_steps=60), "shift", {"*": {"*": "&_&1"}}, {"a": {TEXT * 10: 1}}),
        (SpecLimits(max_nodes=60), "shift", {"*": {"*": "&.&1"}}, {"a": {TEXT * 10: 1}}),
    ],
)
def test_limits_of_the_caller(limits: SpecLimits, operation: str, spec: Any, payload: Any) -> None:
    chain = [{"operation": "remove", "spec": {"none": ""}}, {"operation": operation, "spec": spec}]
    assert compile_spec(chain)(payload) is not None
    with pytest.raises(TransformError) as caught:
        compile_spec(chain, limits)(payload)
    assert caught.value.pointer == "/1"
    # The limits of one spec are none of another's.
    assert compile_spec(chain)(payload) is not None
