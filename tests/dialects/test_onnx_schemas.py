"""Tests the operator classes that are generated from ONNX's schemas."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import defs
from xdsl.context import Context
from xdsl.parser import Parser
from xdsl.traits import Pure
from xdsl.utils.exceptions import ParseError, VerifyException

from popgraph.dialects.onnx import op_base, op_class, operators, tensor_type
from popgraph.dialects.onnx.attributes import FloatsAttr
from popgraph.dialects.onnx.other_names import OPERATORS, computed_by
from popgraph.dialects.onnx.types import NamesAttr, describe, dims, joined, refined, substituted
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.dialects.registry import register
from popgraph.dialects.value_types import set_type
from popgraph.support.errors import ModelError, TypeMismatchError, UnsupportedError


@pytest.fixture(scope="module")
def context() -> Context:
    made = Context()
    register(made)
    return made


def test_one_class_per_schema() -> None:
    schemas = defs.get_all_schemas_with_history()
    assert len(operators()) == len(schemas) == len({op.name for op in operators()})
    for op in operators():
        definition = op.get_irdl_definition()
        assert len(definition.operands) == len(op.SCHEMA.inputs)
        assert len(definition.results) == len(op.SCHEMA.outputs)
        assert len(op.KINDS) + len(op.GRAPHS) == len(op.SCHEMA.attributes)


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (("Relu", 5), "onnx.Relu.v1"),
        (("Relu", 13), "onnx.Relu.v13"),
        (("Relu", 28), "onnx.Relu.v14"),
        (("Relu", 17, "ai.onnx"), "onnx.Relu.v14"),
        (("Scaler", 3, "ai.onnx.ml"), "onnx_ml.Scaler.v1"),
        (("Adam", 1, "ai.onnx.preview.training"), "onnx_training.Adam.v1"),
    ],
)
def test_op_class_has_the_latest_version_of_an_opset(args: tuple[str, int], name: str) -> None:
    assert op_class(*args).name == name


def test_names_of_other_frameworks_mean_operators() -> None:
    known = {schema.name for schema in defs.get_all_schemas() if not schema.domain}
    for meant, others in OPERATORS.items():
        assert set(re.findall(r"\b[A-Z]\w+", meant)) <= known
        assert all(computed_by(other) == meant for other in others.split())
        assert not known & set(others.split()), "these are operators themselves"
    assert computed_by("Permute") == computed_by("permute") == "Transpose"
    assert computed_by("Relu") == computed_by("Conv4d") == ""


def test_versions_share_a_class() -> None:
    assert issubclass(op_class("Relu", 6), op_base("Relu"))
    assert issubclass(op_class("Relu", 14), op_base("Relu"))
    assert not issubclass(op_class("Elu", 6), op_base("Relu"))


@pytest.mark.parametrize(
    ("args", "kind", "text"),
    [
        (
            ("Rellu", 14),
            ModelError,
            "domain ai.onnx has no operator 'Rellu'\n  try: the closest name is Relu",
        ),
        (
            ("Dense", 17),
            ModelError,
            "domain ai.onnx has no operator 'Dense'\n  try: use `x @ w + b`",
        ),
        (
            ("AdaptiveAvgPool2d", 17),
            ModelError,
            "domain ai.onnx has no operator 'AdaptiveAvgPool2d'\n  try: use GlobalAveragePool",
        ),
        (
            ("TimeDistributed", 17),
            ModelError,
            "domain ai.onnx has no operator 'TimeDistributed'\n  try: `popgraph ops` lists all",
        ),
        (
            ("Mish", 17),
            ModelError,
            "operator Mish does not exist in opset 17 of domain ai.onnx\n"
            "  try: import opset 18 or later",
        ),
        (
            ("Gelu", 1, "com.microsoft"),
            UnsupportedError,
            "operator com.microsoft::Gelu has no schema\n"
            "  try: use onnx.Custom for operators of other domains",
        ),
    ],
)
def test_unknown_operators_are_refused(
    args: tuple[str, int], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        op_class(*args)
    assert str(caught.value) == text


def test_random_operators_are_not_pure() -> None:
    assert any(isinstance(t, Pure) for t in op_class("Relu", 14).traits)
    for name in ("RandomNormal", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout", "If"):
        assert not any(isinstance(t, Pure) for t in op_class(name, 17).traits), name


def conv_writer() -> GraphWriter:
    writer = GraphWriter({"": 17}, WeightStore())
    x = writer.add_input("x", tensor_type("f32", ["N", 3, 8, 8]))
    w = writer.add_initializer("w", np.ones((2, 3, 3, 3), np.float32))
    writer.add_node(
        "Conv",
        [x, w, None],
        {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"},
        outputs=["y"],
        name="c/1",
    )
    writer.set_outputs(["y"])
    return writer


def test_text_of_a_node() -> None:
    text = str(conv_writer().module())
    line = next(line.strip() for line in text.splitlines() if "Conv" in line)
    assert line == (
        '%y = onnx.Conv.v11(%x, %w) {pads = [1, 1, 1, 1], auto_pad = "NOTSET"} -> ["y"] '
        'named "c/1" : tensor<?x2x8x8xf32, #onnx.dims<["N", "", "", ""]>>'
    )


def test_attribute_values_have_defaults_filled_in() -> None:
    writer = conv_writer()
    (conv,) = (op for op in writer.block.ops if "Conv" in op.name)
    assert conv.attribute_values() == {  # type: ignore[attr-defined]
        "auto_pad": "NOTSET",
        "group": 1,
        "pads": [1, 1, 1, 1],
    }
    assert set(conv.properties) == {"pads", "auto_pad"}


def test_types_that_do_not_fit_do_not_verify() -> None:
    module = conv_writer().module()
    conv = next(op for op in module.walk() if "Conv" in op.name)
    module.verify()
    set_type(conv.results[0], tensor_type("f64", [1, 2, 8, 8]))
    with pytest.raises(VerifyException):
        module.verify()
    set_type(conv.results[0], tensor_type("i64", [1, 2, 8, 8]))
    with pytest.raises(VerifyException, match=r"i64\[1, 2, 8, 8\] is not one of .*f32"):
        module.verify()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('%y = onnx.Relu.v14(%z) -> ["y"] : tensor<2xf32>', "used before it is defined"),
        ('%y = onnx.Relu.v14(%x, %x) -> ["y"] : tensor<2xf32>', "2 operands"),
        ('%y = onnx.Relu.v14(%x) {axis = 1} -> ["y"] : tensor<2xf32>', "unknown attribute axis"),
        ('%y = onnx.Relu.v77(%x) -> ["y"] : tensor<2xf32>', "onnx.Relu.v77"),
    ],
)
def test_malformed_node_text_is_refused(context: Context, line: str, message: str) -> None:
    text = f"""
    onnx.Graph "g" inputs ("x") outputs ("y") {{
    ^bb0(%x: tensor<2xf32>):
      {line}
      onnx.Yield %y : tensor<2xf32>
    }}"""
    with pytest.raises(ParseError) as caught:
        Parser(context, text).parse_module()
    assert message in str(caught.value)


@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=5))
def test_floats_attributes_are_read_back_bit_for_bit(bits: list[int]) -> None:
    attribute = FloatsAttr(np.array(bits, "<u4").tobytes())
    context = Context()
    register(context)
    assert Parser(context, str(attribute)).parse_attribute() == attribute


@given(st.lists(st.binary(max_size=8), max_size=4))
def test_names_attributes_are_read_back_byte_for_byte(names: list[bytes]) -> None:
    attribute = NamesAttr(tuple(names))
    context = Context()
    register(context)
    assert Parser(context, str(attribute)).parse_attribute() == attribute


@given(st.floats(width=32, allow_nan=False) | st.just(math.nan))
def test_float_attributes_are_read_back(value: float) -> None:
    writer = GraphWriter({"": 17}, WeightStore())
    x = writer.add_input("x", tensor_type("f32", [2]))
    writer.add_node("LeakyRelu", [x], {"alpha": value}, outputs=["y"])
    writer.set_outputs(["y"])
    module = writer.module()
    context = Context()
    register(context)
    assert Parser(context, str(module)).parse_module().is_structurally_equivalent(module)


def test_types_are_refined_joined_and_substituted() -> None:
    symbolic = tensor_type("f32", ["N", None, 3])
    assert dims(symbolic) == ("N", None, 3)
    assert describe(refined(symbolic, tensor_type("f32", [2, 5, 3]))) == "f32[2, 5, 3]"
    assert describe(refined(tensor_type("f32", None), symbolic)) == "f32[N, ?, 3]"
    assert describe(joined(symbolic, tensor_type("f32", ["N", 4, 3]))) == "f32[N, ?, 3]"
    assert describe(joined(symbolic, tensor_type("f32", [2]))) == "f32[...]"
    assert describe(substituted(symbolic, {"N": 7})) == "f32[7, ?, 3]"
    with pytest.raises(TypeMismatchError, match="unknown element type 'float'"):
        tensor_type("float", [2])


def test_operator_classes_are_generated_lazily() -> None:
    """Generating all 659 classes takes longer than the rest of the import."""
    code = (
        "import popgraph.compiler\n"
        "from popgraph.dialects.onnx import schemas\n"
        "made = set(schemas._MADE)\n"
        "assert schemas.op_class('Selu', 6) is schemas.op_class('Selu', 20)\n"
        "assert ('', 'Selu', 6) not in made, made\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
