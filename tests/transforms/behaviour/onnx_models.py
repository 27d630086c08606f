"""Small ONNX models, as bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'idgraph[models]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'idgraph[models]'")

FLOAT, DOUBLE, INT64, STRING, BOOL = (
    getattr(onnx.TensorProto, name) for name in ("FLOAT", "DOUBLE", "INT64", "STRING", "BOOL")
)


def tensor(name: str, kind: int, shape: list[Any]) -> Any:
    """A declared input or output."""
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], **graph: Any) -> bytes:
    """A model of these parts."""
    made = onnx.helper.make_graph(nodes, "g", inputs, outputs, **graph)
    versions = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 4)]
    found: bytes = onnx.helper.make_model(made, opset_imports=versions, ir_version=10).SerializeToString()
    return found


def linear(weights: list[float], rows: Any = None) -> bytes:
    """The weighted sum of a row."""
    node = onnx.helper.make_node(
        "LinearRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        coefficients=[float(each) for each in weights],
        intercepts=[0.5],
    )
    return model([node], [tensor("x", FLOAT, [rows, len(weights)])], [tensor("y", FLOAT, [rows, 1])])


def same(kind: int, columns: int = 1) -> bytes:
    """What it is given."""
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    return model([node], [tensor("x", kind, [1, columns])], [tensor("y", kind, [1, columns])])


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
