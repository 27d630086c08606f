"""Models: ONNX files that give a value for one row of a profile's attributes.

ONNX Runtime promises no reproducible results: rows in one batch and threads change the last digits of a number. So one row runs
at a time, on one thread, without optimisation of the graph, and numbers are rounded as the definition says.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from idgraph.model import paths
from idgraph.model.behaviour import AppliedModel
from idgraph.model.errors import SpecError
from idgraph.model.records import ModelInterface, ModelTensor
from transforms.behaviour.windows import Derived

LoadModel: TypeAlias = Callable[[str], bytes]
"""From a digest to a model's bytes; raises KeyError if there is no such model."""

LARGEST_MODEL_BYTES = 16 * 1024 * 1024
MOST_NODES = 10_000
_STANDARD = """
Abs Add And ArgMax ArgMin BatchNormalization Cast Ceil Clip Concat Constant Div Elu Equal Erf Exp Flatten Floor Gather
GatherElements Gelu Gemm Greater GreaterOrEqual HardSigmoid Identity IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual
Log LogSoftmax MatMul Max Mean Min Mod Mul Neg Not Or PRelu Pow Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax
ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round Selu Shape Sigmoid Sign Slice Softmax Softplus
Softsign Split Sqrt Squeeze Sub Sum Tanh TopK Transpose Unsqueeze Where Xor
"""
_MACHINE_LEARNING = """
ArrayFeatureExtractor Binarizer CategoryMapper FeatureVectorizer Imputer LabelEncoder LinearClassifier LinearRegressor
Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor
"""
_OPERATORS = {"": frozenset(_STANDARD.split()), "ai.onnx.ml": frozenset(_MACHINE_LEARNING.split())}
"""By domain, those that models of rows need: none loops, draws numbers or makes a tensor of a stated size."""


def no_models(digest: str) -> bytes:
    """A `LoadModel` that has none."""
    raise KeyError(digest)


def check_model(content: bytes) -> str:
    """The digest of a model that may be used. Raises SpecError without a pointer."""
    onnx = _library("onnx")
    if len(content) > LARGEST_MODEL_BYTES:
        raise SpecError(f"the model has more than {LARGEST_MODEL_BYTES:,} bytes")
    try:
        model = onnx.load_model_from_string(content)
        _check_parts(model)
        # It looks for other files that a model names.
        onnx.checker.check_model(model)
    except SpecError:
        raise
    except Exception as error:
        # The library's errors have no common class but this one.
        raise SpecError("the file is no valid ONNX model", hint=_first_line(error)) from None
    return hashlib.sha256(content).hexdigest()


def interface_of(content: bytes) -> ModelInterface:
    """Inputs and outputs of a model that `check_model` accepted."""
    onnx = _library("onnx")
    graph = onnx.load_model_from_string(content).graph
    # Older formats list constants among the inputs.
    constant = {each.name for each in graph.initializer}

    def shown(each: Any) -> ModelTensor:
        tensor = each.type.tensor_type
        *_, last = tensor.shape.dim or [None]
        return ModelTensor(
            name=each.name,
            type=onnx.TensorProto.DataType.Name(tensor.elem_type).lower(),
            columns=last.dim_value if last is not None and last.HasField("dim_value") else None,
        )

    return ModelInterface(
        bytes=len(content),
        nodes=len(graph.node),
        inputs=[shown(each) for each in graph.input if each.name not in constant],
        outputs=[shown(each) for each in graph.output],
    )


def _check_parts(model: Any) -> None:
    graph = model.graph
    if len(graph.node) > MOST_NODES:
        raise SpecError(f"the model has more than {MOST_NODES:,} nodes")
    if model.functions or graph.sparse_initializer:
        raise SpecError("the model has functions or sparse tensors of its own", hint="export it without them")
    tensors = list(graph.initializer)
    for node in graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if node.op_type not in _OPERATORS.get(domain, ()):
            name = f"{domain}.{node.op_type}" if domain else node.op_type
            hint = "convert it with the option zipmap=False" if node.op_type == "ZipMap" else None
            raise SpecError(f"the operator {name} is not allowed", hint=hint)
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
            if attribute.HasField("g") or attribute.graphs or attribute.HasField("sparse_tensor"):
                raise SpecError(f"the operator {node.op_type} has a graph or a sparse tensor of its own")
    if any(each.data_location or each.external_data for each in tensors):
        raise SpecError("the model keeps data in other files", hint="save it as one file")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _library(name: str) -> Any:
    try:
        if name == "onnx":
            import onnx

            return onnx
        import onnxruntime

        return onnxruntime
    except ImportError:
        raise SpecError(f"models need {name}: pip install 'idgraph[models]'") from None


class _Kind(NamedTuple):
    """A type of inputs: numpy's name of it, how a value is read, None for one of another type, and a value for a trial."""

    name: str
    read: Callable[[Any], Any]
    trial: Any


class _Input(NamedTuple):
    """An input of a model."""

    name: str
    columns: int
    kind: _Kind


class ModelDerivation:
    """A model's value for a profile. Raises SpecError with a pointer below `model`."""

    def __init__(self, model: AppliedModel, load_model: LoadModel) -> None:
        self._model = model
        self._paths = [paths.split(each.path) for each in model.inputs]
        self._session = _session(model.digest, load_model)
        self._inputs = list(_inputs(self._session))
        expected = sum(each.columns for each in self._inputs)
        if expected != len(model.inputs):
            raise SpecError(f"the model has {expected} columns, and {len(model.inputs)} are named", "/inputs")
        self._kinds = [each.kind for each in self._inputs for _ in range(each.columns)]
        self._defaults = [self._default(position) for position in range(expected)]
        self._output = _output(self._session, model.output)
        self._try()

    def of(self, attributes: Mapping[str, Any]) -> Derived:
        """`attributes` are the profile as nested objects."""
        row = []
        for keys, kind, default in zip(self._paths, self._kinds, self._defaults, strict=True):
            value = kind.read(paths.value_at(attributes, keys))
            if value is None:
                value = default
            if value is None:
                return Derived({}, model=self._model.digest)
            row.append(value)
        try:
            found = self._run(row)
        except Exception:
            # The library's errors have no common class but this one, and may quote values.
            return Derived({}, problem="the model cannot be run for these values", model=self._model.digest)
        value = self._shown(found[self._model.column or 0])
        if value is None:
            return Derived({}, problem="the model's result is not a finite number", model=self._model.digest)
        return Derived({"": value}, model=self._model.digest)

    def _default(self, position: int) -> Any:
        default = self._model.inputs[position].default
        value = self._kinds[position].read(default)
        if default is not None and value is None:
            raise SpecError("the model reads another type in this column", f"/inputs/{position}/default")
        return value

    def _run(self, row: list[Any]) -> list[Any]:
        import numpy

        fed, begin = {}, 0
        for each in self._inputs:
            fed[each.name] = numpy.array([row[begin : begin + each.columns]], dtype=each.kind.name)
            begin += each.columns
        found = self._session.run([self._output], fed)[0].reshape(-1)
        # A number of 32 bits as it is written: 20.8 and not the double next to it.
        return [float(str(each)) for each in found] if found.dtype == "float32" else found.tolist()

    def _shown(self, value: Any) -> Any:
        if type(value) is not float:
            return value
        # Of the two zeros the one without a sign.
        return round(value, self._model.digits) + 0.0 if math.isfinite(value) else None

    def _try(self) -> None:
        """Run once, so that a definition that cannot work is refused."""
        tried = [
            kind.trial if default is None else default
            for kind, default in zip(self._kinds, self._defaults, strict=True)
        ]
        try:
            columns = len(self._run(tried))
        except Exception as error:
            # As in `of`; here are no values but defaults.
            raise SpecError(
                "the model cannot be run for the defaults", "/inputs", hint=_first_line(error)
            ) from None
        if self._model.column is None and columns != 1:
            raise SpecError(f"the output {self._output} has {columns} columns", hint="name one as `column`")
        if self._model.column is not None and self._model.column >= columns:
            raise SpecError(f"the output {self._output} has {columns} columns, counted from 0", "/column")


def _session(digest: str, load_model: LoadModel) -> Any:
    runtime = _library("onnxruntime")
    try:
        content = load_model(digest)
    except KeyError:
        raise SpecError("there is no model with this digest", "/digest", hint="add its file first") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise SpecError("the stored model has another digest", "/digest", hint="add its file again")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # As in `check_model`.
        raise SpecError("ONNX Runtime cannot load the model", "/digest", hint=_first_line(error)) from None


def _inputs(session: Any) -> Iterator[_Input]:
    for each in session.get_inputs():
        kind = _KINDS.get(each.type)
        if kind is None:
            raise SpecError(f"the model's input {each.name} is a {each.type}, which no attribute gives")
        takes_one = len(each.shape) == 2 and (each.shape[0] in (1, None) or type(each.shape[0]) is str)
        if not takes_one:
            raise SpecError(f"the model's input {each.name} does not take one row: its shape is {each.shape}")
        if type(each.shape[1]) is not int:
            raise SpecError(f"the model's input {each.name} does not say how many columns it has")
        yield _Input(each.name, each.shape[1], kind)


def _output(session: Any, name: str | None) -> str:
    kinds = {each.name: each.type for each in session.get_outputs()}
    names = ", ".join(kinds)
    if name is None and len(kinds) != 1:
        raise SpecError(f"the model has the outputs {names}", hint="name one as `output`")
    chosen = next(iter(kinds)) if name is None else name
    if chosen not in kinds:
        raise SpecError(f"the model has no output {chosen}", "/output", hint=f"it has: {names}")
    if not kinds[chosen].startswith("tensor("):
        raise SpecError(f"the output {chosen} is a {kinds[chosen]}", "/output", hint="a tensor is needed")
    return chosen


def _real(largest: float) -> Callable[[Any], float | None]:
    def read(value: Any) -> float | None:
        # Anything else, and a number beyond the type's range, counts as missing.
        if type(value) not in (bool, int, float, Decimal) or not abs(value) <= largest:
            return None
        return float(value)

    return read


def _whole(value: Any) -> int | None:
    if type(value) not in (bool, int, float, Decimal) or not abs(value) < 2**63 or value != int(value):
        return None
    return int(value)


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def _truth(value: Any) -> bool | None:
    return value if type(value) is bool else None


_KINDS = {
    "tensor(float)": _Kind("float32", _real(3.4028234663852886e38), 0.0),
    "tensor(double)": _Kind("float64", _real(1.7976931348623157e308), 0.0),
    "tensor(int64)": _Kind("int64", _whole, 0),
    "tensor(string)": _Kind("object", _text, ""),
    "tensor(bool)": _Kind("bool", _truth, False),
}
"""By the type of an input of ONNX Runtime."""
