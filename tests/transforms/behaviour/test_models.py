"""Models: one row of a profile's attributes to a value, and what is refused."""

from __future__ import annotations

import sys
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from idgraph.model.errors import SpecError
from tests.transforms.behaviour.naive import BEGIN, derived, entry
from tests.transforms.behaviour.onnx_models import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT64,
    STRING,
    digest,
    linear,
    model,
    onnx,
    same,
    tensor,
)
from transforms.behaviour.derivations import Derivation, Derived, compile_derived, derive
from transforms.behaviour.models import LARGEST_MODEL_BYTES, MOST_NODES, check_model


def compiled(content: bytes, *inputs: Any, **more: Any) -> Derivation:
    named = [
        {"path": each} if isinstance(each, str) else {"path": each[0], "default": each[1]} for each in inputs
    ]
    definition = derived(model={"digest": digest(content), "inputs": named, **more})
    return compile_derived(definition, {digest(content): content}.__getitem__)


def of(content: bytes, attributes: dict[str, Any], *inputs: Any, **more: Any) -> Derived:
    return compiled(content, *inputs, **more).of({}, attributes, BEGIN)


def node(name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(name, inputs, outputs, **attributes)


def test_a_row_of_attributes_in_the_order_of_the_columns() -> None:
    found = of(linear([2, 3]), {"a": {"b": 10}, "c": Decimal("0.1")}, "a.b", "c")
    assert found == Derived({"": 20.8}, model=digest(linear([2, 3])))
    assert of(linear([2, 3]), {"a": {"b": 10}, "c": 0.1}, "c", "a.b").leaves == {"": 30.7}


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        ({"a": 1}, 3.5),
        ({}, 10.5),
        ({"a": "text"}, 10.5),
        ({"a": None}, 10.5),
        ({"a": 10**400}, 10.5),
        ({"a": True}, 3.5),
    ],
)
def test_a_default_stands_for_what_is_missing_or_of_another_type(
    attributes: dict[str, Any], value: float
) -> None:
    assert of(linear([3, 1]), attributes | {"b": 0}, ("a", 10 / 3), "b").leaves == {"": value}


def test_without_a_default_there_is_no_value() -> None:
    content = linear([3])
    assert of(content, {}, "a") == Derived({}, model=digest(content))


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (FLOAT, 0.1, 0.1),
        (DOUBLE, 0.123456789, 0.123457),
        (DOUBLE, -1e-9, 0.0),
        (INT64, 2**60, 2**60),
        (INT64, 3.0, 3),
        (INT64, 3.5, None),
        (STRING, "ö", "ö"),
        (STRING, 3, None),
        (BOOL, True, True),
        (BOOL, 1, None),
    ],
)
def test_types(kind: int, given: Any, value: Any) -> None:
    shown = of(same(kind), {"a": given}, "a").leaves.get("")
    assert (type(shown), repr(shown)) == (type(value), repr(value))


def test_a_model_reads_what_is_derived_of_timelines_and_by_expressions() -> None:
    scored = compiled(linear([1, 100]), "a.b", "double")
    orders = compile_derived(derived(window={"activity": "orders"}))
    double = compile_derived(derived(expression="sum([a.b, a.b])", path="double"))
    results = derive([scored, double, orders], {"orders": [entry(BEGIN)]}, {}, BEGIN + 1)
    assert [each.leaves for each in results] == [{"": 201.5}, {"": 2}, {"": 1}]


def test_digits() -> None:
    assert of(same(DOUBLE), {"a": 0.126}, "a", digits=2).leaves == {"": 0.13}
    assert of(same(DOUBLE), {"a": 0.126}, "a", digits=0).leaves == {"": 0.0}


def test_several_inputs_and_outputs() -> None:
    content = model(
        [node("Add", ["n", "n"], ["sum"]), node("Identity", ["t"], ["text"])],
        [tensor("n", INT64, ["rows", 2]), tensor("t", STRING, ["rows", 1])],
        [tensor("sum", INT64, ["rows", 2]), tensor("text", STRING, ["rows", 1])],
    )
    attributes, names = {"a": 1, "b": 2, "c": "x"}, ("a", "b", "c")
    assert of(content, attributes, *names, output="text").leaves == {"": "x"}
    assert of(content, attributes, *names, output="sum", column=1).leaves == {"": 4}


def test_a_result_that_is_no_number() -> None:
    content = model([node("Log", ["x"], ["y"])], [tensor("x", FLOAT, [1, 1])], [tensor("y", FLOAT, [1, 1])])
    assert of(content, {"a": -1}, "a").problem == "the model's result is not a finite number"
    assert of(content, {"a": 0}, "a").leaves == {}


def test_values_that_the_model_cannot_run_for() -> None:
    encode = node("OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml", cats_strings=["", "secret"], zeros=0)
    content = model([encode], [tensor("x", STRING, [1, 1])], [tensor("y", FLOAT, [1, 1, 2])])
    assert of(content, {"a": "secret"}, "a", column=1).leaves == {"": 1.0}
    found = of(content, {"a": "4111111111111111"}, "a", column=1)
    assert found.leaves == {}
    assert found.problem == "the model cannot be run for these values"


@pytest.mark.parametrize(
    ("inputs", "more", "message"),
    [
        (["a", "b"], {}, "/model/inputs: the model has 1 columns, and 2 are named"),
        ([("a", "text")], {}, "/model/inputs/0/default: the model reads another type"),
        (["a"], {"output": "z"}, r"/model/output: the model has no output z \(it has: y\)"),
        (["a"], {"column": 1}, "/model/column: the output y has 1 columns"),
    ],
)
def test_a_definition_that_does_not_fit_its_model(
    inputs: list[Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        compiled(linear([1]), *inputs, **more)


def test_an_output_must_be_named_where_there_are_several() -> None:
    with pytest.raises(SpecError, match=r"the output y has 2 columns \(name one as `column`\)"):
        compiled(same(FLOAT, 2), "a", "b")
    two = model(
        [node("Identity", ["x"], ["y"]), node("Identity", ["x"], ["z"])],
        [tensor("x", FLOAT, [1, 1])],
        [tensor("y", FLOAT, [1, 1]), tensor("z", FLOAT, [1, 1])],
    )
    with pytest.raises(SpecError, match=r"the model has the outputs y, z \(name one as `output`\)"):
        compiled(two, "a")


def test_the_model_must_be_there_and_be_the_one() -> None:
    definition = derived(model={"digest": "0" * 64, "inputs": [{"path": "a"}]})
    with pytest.raises(SpecError, match="/model/digest: there is no model with this digest"):
        compile_derived(definition)
    with pytest.raises(SpecError, match="/model/digest: the stored model has another digest"):
        compile_derived(definition, lambda _: linear([1]))


@pytest.mark.parametrize("library", ["onnx", "onnxruntime"])
def test_the_extra_is_named_where_it_is_missing(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = linear([1])
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SpecError, match=rf"models need {library}: pip install 'idgraph\[models\]'"):
        check_model(content) if library == "onnx" else compiled(content, "a")


def test_a_model_that_may_be_used() -> None:
    assert check_model(linear([1])) == digest(linear([1]))


def _external() -> bytes:
    weights = onnx.helper.make_tensor("w", FLOAT, [1, 1], b"\0" * 4, raw=True)
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="weights.bin")
    return _with([node("Add", ["x", "w"], ["y"])], initializer=[weights])


def _with(nodes: list[Any], **graph: Any) -> bytes:
    return model(nodes, [tensor("x", FLOAT, [1, 1])], [tensor("y", FLOAT, [1, 1])], **graph)


def _many() -> bytes:
    names = ["x", *(f"n{at}" for at in range(MOST_NODES)), "y"]
    return _with([node("Neg", [one], [other]) for one, other in pairwise(names)])


def _loop() -> bytes:
    body = onnx.helper.make_graph(
        [node("Identity", ["more"], ["again"]), node("Identity", ["before"], ["after"])],
        "body",
        [tensor("at", INT64, []), tensor("more", BOOL, []), tensor("before", FLOAT, [1, 1])],
        [tensor("again", BOOL, []), tensor("after", FLOAT, [1, 1])],
    )
    forever = onnx.helper.make_tensor("t", BOOL, [], [True])
    return _with(
        [node("Constant", [], ["go"], value=forever), node("Loop", ["", "go", "x"], ["y"], body=body)]
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a model", "the file is no valid ONNX model"),
        (b"", "the file is no valid ONNX model"),
        (b"\0" * (LARGEST_MODEL_BYTES + 1), "the model has more than 16,777,216 bytes"),
        (_many(), "the model has more than 10,000 nodes"),
        (_external(), "the model keeps data in other files"),
        (_loop(), "the operator Loop is not allowed"),
        (_with([node("RandomNormalLike", ["x"], ["y"])]), "the operator RandomNormalLike is not allowed"),
    ],
    ids=["text", "empty", "large", "many nodes", "other files", "loop", "random"],
)  # fmt: skip
def test_refused_models(content: bytes, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        check_model(content)


def test_operators_of_others_are_refused() -> None:
    found = onnx.load_model_from_string(linear([1]))
    found.graph.node[0].domain = "com.example"
    found.opset_import.add(domain="com.example", version=1)
    with pytest.raises(SpecError, match=r"the operator com\.example\.LinearRegressor is not allowed"):
        check_model(found.SerializeToString())


def test_one_row_gives_the_same_whatever_shape_the_model_states() -> None:
    """Numbers differ between batches; one row is one batch whether or not the model says so."""
    weights = [0.1 * at for at in range(1, 40)]
    row = {f"a{at}": at / 7 for at in range(39)}
    found = [of(linear(weights, rows), row, *row).leaves for rows in (1, None, "rows")]
    assert found[0] == found[1] == found[2]


@pytest.mark.filterwarnings("ignore")
def test_a_classifier_of_scikit_learn_is_the_one_that_was_trained() -> None:
    sklearn = pytest.importorskip("sklearn.ensemble")
    skl2onnx = pytest.importorskip("skl2onnx")
    rows = [[at % 7, at % 3] for at in range(60)]
    trained = sklearn.GradientBoostingClassifier(n_estimators=8, random_state=1)
    trained.fit(rows, [at % 7 > 3 for at in range(60)])
    kind = skl2onnx.common.data_types.FloatTensorType([None, 2])
    content = skl2onnx.convert_sklearn(
        trained, initial_types=[("x", kind)], options={"zipmap": False}, target_opset=18
    ).SerializeToString()
    assert check_model(content) == digest(content)
    derivation = compiled(content, "a", "b", output="probabilities", column=1, digits=5)
    for row in rows[:21]:
        expected = round(float(trained.predict_proba([row])[0][1]), 5)
        shown = derivation.of({}, dict(zip("ab", row, strict=True)), BEGIN).leaves[""]
        assert shown == pytest.approx(expected, abs=2e-5)
