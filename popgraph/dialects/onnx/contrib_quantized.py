"""The operators that quantizers of onnxruntime write: a table of functions over ONNX's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from onnx import FunctionProto, parser
from xdsl.dialects.builtin import IntegerAttr

from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.contrib import MICROSOFT
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import DEFINITIONS
from popgraph.dialects.onnx.reader import read_function
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import TypeMismatchError, UnsupportedError

OPSET = 21
"""The version of ONNX's operators of which the bodies are made."""

Attributes = Mapping[str, int]
"""Those of a node that are whole numbers."""


@dataclass(frozen=True)
class Row:
    """One operator: its inputs by name, its body, and what stands for inputs that are absent."""

    inputs: str
    body: str | Callable[[Attributes], str]
    """Nodes in ONNX's text, separated by `;`. The result is Y."""
    absent: Mapping[str, str]
    """An expression for each input that may be absent."""
    attributes: str = ""
    """With their defaults, as ONNX's text has them."""
    admits: Callable[[Attributes], bool] = lambda attributes: True
    """Whether this is the meaning of a node with these attributes."""


_NOTHING = "CastLike (nothing, {})"
"""0 in the element type of another value."""


def _zero(**like: str) -> dict[str, str]:
    """Zero points that are 0 where they are absent, in the element types of these."""
    return {name: _NOTHING.format(other) for name, other in like.items()}


_ZERO_A, _ZERO_X = _zero(Az="A", Bz="B", Yz="A"), _zero(Xz="X", Yz="X")


def _of_two(operator: str) -> Row:
    return Row(
        "A As Az B Bs Bz Ys Yz",
        "a = DequantizeLinear (A, As, Az); b = DequantizeLinear (B, Bs, Bz);"
        f"y = {operator} (a, b); Y = QuantizeLinear (y, Ys, Yz)",
        _ZERO_A,
    )


def _of_one(expression: str, attributes: str = "", **more: Callable[[Attributes], bool]) -> Row:
    return Row(
        "X Xs Xz Ys Yz",
        f"x = DequantizeLinear (X, Xs, Xz); y = {expression}; Y = QuantizeLinear (y, Ys, Yz)",
        _ZERO_X,
        attributes,
        **more,
    )


def _gemm(attributes: Attributes) -> str:
    """Sums of 32 bits, with C among them, times the scales."""
    turned = ("Identity", "Transpose <perm = [1, 0]>")
    return (
        f"a = {turned[attributes.get('transA', 0)]} (A);"
        f"b = {turned[attributes.get('transB', 0)]} (B);"
        "product = MatMulInteger (a, b, Az, Bz); sums = Add (product, C);"
        "real = Cast <to = 1> (sums); scale = Mul (As, Bs); scaled = Mul (real, scale);"
        "alpha = Constant <value_float: float = @alpha> (); y = Mul (scaled, alpha);"
    )


_GEMM = "alpha: float = 1.0, transA: int = 0, transB: int = 0"
_FLOAT = (
    "sums = MatMulInteger (A, B, Az, Bz); real = Cast <to = 1> (sums);"
    "scale = Mul (As, Bs); scaled = Mul (real, scale); Y = Add (scaled, bias)"
)

TABLE: Mapping[str, Row] = {
    "QuantizeLinear": Row(
        "X Ys Yz",
        "Y = QuantizeLinear <axis: int = @axis, block_size: int = @block_size> (X, Ys, Yz)",
        {"Yz": "Constant <value = uint8 {0}> ()"},
        "axis: int = 1, block_size: int = 0",
    ),
    "DequantizeLinear": Row(
        "X Xs Xz",
        "Y = DequantizeLinear <axis: int = @axis, block_size: int = @block_size> (X, Xs, Xz)",
        _zero(Xz="X"),
        "axis: int = 1, block_size: int = 0",
    ),
    "QLinearAdd": _of_two("Add"),
    "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid (x)"),
    "QLinearLeakyRelu": _of_one("LeakyRelu <alpha: float = @alpha> (x)", "alpha: float = 0.01"),
    "QLinearSoftmax": _of_one(
        "Softmax <axis: int = @axis> (x)",
        "axis: int = -1, opset: int = 13",
        admits=lambda attributes: attributes.get("opset", 0) >= 13,
    ),
    "QLinearGlobalAveragePool": _of_one(
        "GlobalAveragePool (x)",
        "channels_last: int = 0",
        admits=lambda attributes: not attributes.get("channels_last", 0),
    ),
    "QGemm": Row(
        "A As Az B Bs Bz C Ys Yz",
        lambda given: _gemm(given) + "Y = QuantizeLinear (y, Ys, Yz)",
        {"Az": _NOTHING.format("A"), "Bz": _NOTHING.format("B"), "C": "Cast <to = 6> (nothing)"},
        _GEMM,
    ),
    "QGemm without a scale of the result": Row(
        "A As Az B Bs Bz C",
        lambda given: _gemm(given) + "Y = Identity (y)",
        {"Az": _NOTHING.format("A"), "Bz": _NOTHING.format("B"), "C": "Cast <to = 6> (nothing)"},
        _GEMM,
    ),
    "MatMulIntegerToFloat": Row(
        "A B As Bs Az Bz bias",
        _FLOAT,
        {**_zero(Az="A", Bz="B"), "bias": "Identity (nothing)"},
    ),
    "DynamicQuantizeMatMul": Row(
        "X B Bs Bz bias",
        "A, As, Az = DynamicQuantizeLinear (X);" + _FLOAT,
        {**_zero(Bz="B"), "bias": "Identity (nothing)"},
    ),
}
"""By operator; QLinearConcat takes any number of inputs and is made by `_concatenation`."""


def quantized_operators() -> list[str]:
    """The operators that have a meaning here."""
    return sorted({name.split()[0] for name in TABLE} | {"QLinearConcat"})


def _define(op: Custom) -> Function:
    """The body that stands for a node of an operator of this table."""
    numbers = {
        name: held.value.data
        for name, held in op.onnx_attributes().items()
        if isinstance(held, IntegerAttr)
    }
    present = tuple(value is not None for value in op.input_values())
    if op.op_type == "QLinearConcat":
        proto = _concatenation(len(present))
    else:
        name = op.op_type
        if name == "QGemm" and (len(present) < 8 or not present[7]):
            name, present = "QGemm without a scale of the result", present[:7]
        if not TABLE[name].admits(numbers):
            given = ", ".join(f"{key}={number}" for key, number in sorted(numbers.items()))
            raise UnsupportedError(
                f"{op.op_type} with {given} is not supported",
                op.where(),
                "`popgraph ops` lists the operators that compile",
            )
        proto = _parsed(name, present, tuple(sorted(numbers.items())))
    if proto is None:
        raise TypeMismatchError(
            f"{op.op_type} does not take {sum(present)} inputs as they stand here",
            op.where(),
            "compare with the operator's definition in onnxruntime",
        )
    return read_function(proto, WeightStore())


@lru_cache(256)
def _parsed(
    name: str, present: Sequence[bool], attributes: Sequence[tuple[str, int]]
) -> FunctionProto | None:
    """The function of a row, for a node that has these of its inputs; None if it lacks one."""
    row = TABLE[name]
    names = row.inputs.split()
    here = [*present, *[False] * (len(names) - len(present))]
    lacking = [one for one, given in zip(names, here, strict=False) if not given]
    if len(here) > len(names) or not set(lacking) <= set(row.absent):
        return None
    body = row.body if isinstance(row.body, str) else row.body(dict(attributes))
    filled = [f"{one} = {row.absent[one]}" for one in lacking]
    if any("nothing" in one for one in filled):
        filled.insert(0, "nothing = Constant <value_float = 0.0> ()")
    arguments = [f"absent_{one}" if one in lacking else one for one in names]
    return _function(name.split()[0], arguments, row.attributes, [*filled, *body.split(";")])


def _concatenation(count: int) -> FunctionProto | None:
    """QLinearConcat: a scale and a zero point of the result, then of each part behind it."""
    if count < 5 or count % 3 != 2:
        return None
    parts = range((count - 2) // 3)
    names = [f"{one}{part}" for part in parts for one in ("X", "s", "z")]
    lines = [f"x{part} = DequantizeLinear (X{part}, s{part}, z{part})" for part in parts]
    joined = ", ".join(f"x{part}" for part in parts)
    lines += [f"y = Concat <axis: int = @axis> ({joined})", "Y = QuantizeLinear (y, Ys, Yz)"]
    return _function("QLinearConcat", ["Ys", "Yz", *names], "axis: int = 1", lines)


def _function(
    name: str, arguments: Sequence[str], attributes: str, lines: Sequence[str]
) -> FunctionProto:
    given = f"<{attributes}>" if attributes else ""
    body = "\n".join(line.strip() for line in lines if line.strip())
    return parser.parse_function(
        f'<domain: "{MICROSOFT}", opset_import: ["" : {OPSET}]>\n'
        f"{name} {given} ({', '.join(arguments)}) => (Y) {{\n{body}\n}}"
    )


DEFINITIONS.update({(MICROSOFT, name): _define for name in quantized_operators()})
