"""Scalar functions of operators, with their error bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper

from popgraph.dialects.graphcore import GRAPHCORE, Elementwise
from popgraph.dialects.graphcore.base import Array
from popgraph.dialects.tile.scalars import RECORDS, Kind

Exact: TypeAlias = Callable[..., Any]
"""The function in a type that is wider than the judged one."""

TYPES: Mapping[str, int] = {
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
}
OPSET = 28
POPART = "ai.graphcore"


@dataclass(frozen=True)
class Function:
    """
    An operator of ONNX, PopART or PopGraph, its exact meaning, and its error bound in each type.

    Errors are in units in the last place of the exact result; correct rounding has 0.5. With
    `scale`, they are in units of max(|result|, scale(x)), since cancellation in the operator's
    formula loses digits.
    """

    op: str
    exact: Exact
    f16: float = 0.5
    """The bound of f16 and bf16."""
    f32: float = 0.5
    f64: float = 0.5
    arity: int = 1
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    scale: Exact | None = None
    of: str = ""
    """A description of `scale`."""
    vanishes: bool = False
    """Whether results below tiny * max(1, |x|) may be 0, where tiny is the least normal number."""
    slopes: tuple[Exact, ...] = ()
    """Slopes along each operand, where finite differences would be wrong."""

    @property
    def name(self) -> str:
        text = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.op} ({text})" if text else self.op

    def bound(self, dtype: str) -> float:
        return float(getattr(self, "f16" if dtype == "bf16" else dtype))


def erf(x: Any) -> Any:
    """2/sqrt(pi) e^-x^2 (x + 2 x^3/3 + 4 x^5/15 + ...), whose terms have one sign."""
    x = np.asarray(x)
    size = np.minimum(np.abs(x), 7)
    term = total = size
    for count in range(1, 160):
        term = term * (2 * size * size) / (2 * count + 1)
        total = total + term
    wide = x.dtype.type
    found = np.where(np.abs(x) >= 7, wide(1), total * np.exp(-size * size) * 2 / np.sqrt(_pi(wide)))
    return np.where(np.isnan(x), x, np.copysign(found, x))


def erfc(x: Any) -> Any:
    """1 - erf(x); for x >= 2 by its continued fraction."""
    x = np.asarray(x)
    size = np.maximum(x, 2)
    rest = size
    for count in range(120, 0, -1):
        rest = size + (count / x.dtype.type(2)) / rest
    tail = np.exp(-size * size) / np.sqrt(_pi(x.dtype.type)) / rest
    return np.where(x > 2, tail, 1 - erf(np.minimum(x, 2)))


def _pi(wide: Any) -> Any:
    return wide(4) * np.arctan(wide(1))


def single(value: float) -> np.float32:
    """The value of an ONNX attribute, which is f32 for any element type."""
    return np.float32(value)


def sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def mish(x: Any) -> Any:
    """x tanh(ln(1 + e^x)), as a quotient without cancellation."""
    small = np.exp(-np.abs(x))
    above = (1 + 2 * small) / (1 + 2 * small + 2 * small * small)
    below = small * (small + 2) / (small * (small + 2) + 2)
    return x * np.where(x >= 0, above, below)


def gelu_by_tanh(x: Any) -> Any:
    wide = np.asarray(x).dtype.type
    x = np.maximum(x, -64)
    return x * sigmoid(2 * np.sqrt(2 / _pi(wide)) * x * (1 + wide(0.044715) * x * x))


def exponential_unit(alpha: Any, pace: Any = 1, gain: Any = 1) -> Exact:
    return lambda x: gain * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / pace))


def remainder(x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


SLOPE, SIXTH = single(0.01), single(1 / 6)
SELU = single(1.67326319), single(1.05070102)


def hard_swish(x: Any) -> Any:
    return x * np.clip(x * SIXTH + 0.5, 0, 1)


def slope_of_base(x: Any, y: Any) -> Any:
    return y * np.power(x, y - 1)


def slope_of_exponent(x: Any, y: Any) -> Any:
    """x^y ln x for x > 0, else NaN."""
    return np.where(x > 0, np.power(x, y) * np.log(x), np.nan)


def shrink(x: Any) -> Any:
    return np.where(x < -0.5, x + 0.25, np.where(x > 0.5, x - 0.25, 0))


def gelu(x: Any) -> Any:
    return x * erfc(-x / np.sqrt(x.dtype.type(2))) / 2


FLOATS = {record.name: record for record in RECORDS if Kind.FLOAT in record.kinds}
"""The scalar functions of floats."""
WIDER: Mapping[str, Exact] = {"erf": erf}
"""Functions in extended precision that replace those of the reference, which are f64."""


def of_records() -> Iterator[Function]:
    """The operators that are one scalar function, with the error bounds of its record."""
    for op in GRAPHCORE.operations:
        if issubclass(op, Elementwise) and op.ONNX and op.SCALAR in FLOATS:
            record, operator = FLOATS[op.SCALAR], op.ONNX.split()[0]
            domain, _, name = operator.rpartition(".")
            exact = WIDER.get(record.name, record.numpy)
            assert exact is not None
            count = len(op.get_irdl_definition().operands)
            yield Function(name, exact, *record.ulps, arity=count, domain=domain)


FUNCTIONS: tuple[Function, ...] = (
    *of_records(),
    Function("Reciprocal", lambda x: 1 / x),
    Function("Sigmoid", sigmoid, 0.51, 2.5, 2.5, vanishes=True),
    Function("Softplus", softplus, 1.5, 1.5, 2),
    Function("Softsign", lambda x: x / (1 + np.abs(x)), 1.5, 1.5, 1.5),
    Function("Mish", mish, 3, 4, 4.5, vanishes=True),
    Function("Swish", lambda x: x * sigmoid(x), 2, 2.5, 3, vanishes=True),
    Function("Gelu", gelu, 0.51, 2, 2, scale=np.abs, of="x"),
    Function(
        *("Gelu", gelu_by_tanh, 0.51, 200, 1500),
        attributes={"approximate": "tanh"},
        vanishes=True,
    ),
    Function("Elu", exponential_unit(1), 0.51, 0.51, 2),
    Function(
        "Celu", exponential_unit(single(1.5), single(1.5)), 2, 2, 3, attributes={"alpha": 1.5}
    ),
    Function("Selu", exponential_unit(SELU[0], 1, SELU[1]), 3, 2, 3),
    Function(
        *("HardSigmoid", lambda x: np.clip(x * single(0.2) + single(0.5), 0, 1), 1.5, 1.5, 1.5),
        scale=lambda x: 0.5,
        of="0.5",
    ),
    Function("HardSwish", hard_swish, 2, 2, 2, scale=np.abs, of="x"),
    Function("LeakyRelu", lambda x: np.where(x > 0, x, SLOPE * x), 1.5, 0.5, 0.5),
    Function("ThresholdedRelu", lambda x: np.where(x > 1, x, 0 * (x == x)), 0, 0, 0),
    Function(
        *("Shrink", shrink, 0.5, 0.5, 0.5),
        attributes={"bias": 0.25, "lambd": 0.5},
    ),
    Function("Sign", np.sign, 0, 0, 0),
    Function("Relu", lambda x: np.where(x < 0, 0, x), 0, 0, 0),
    Function("PRelu", lambda x, y: np.where(x < 0, x * y, x), arity=2),
    Function("Pow", np.power, *FLOATS["pow"].ulps, 2, slopes=(slope_of_base, slope_of_exponent)),
    Function(
        *("Mod", np.fmod, *FLOATS["rem"].ulps, 2),
        attributes={"fmod": 1},
        slopes=(lambda x, y: 1 + 0 * x, lambda x, y: -np.trunc(x / y)),
    ),
    Function(
        *("Remainder", remainder, 0.5, 0.5, 0.5, 2, POPART),
        slopes=(lambda x, y: 1 + 0 * x, lambda x, y: -np.floor(x / y)),
    ),
)


def model(functions: Sequence[Function], dtype: str, count: int) -> onnx.ModelProto:
    """A model of all functions, each with its own inputs, and the sum of all results as `loss`."""
    kind = TYPES[dtype]
    nodes, inputs, outputs = [], [], []
    for at, each in enumerate(functions):
        operands = [f"{name}{at}" for name in ("x", "y")[: each.arity]]
        nodes += [
            helper.make_node(each.op, operands, [f"z{at}"], domain=each.domain, **each.attributes),
            helper.make_node("ReduceSum", [f"z{at}"], [f"sum{at}"], keepdims=0),
        ]
        inputs += [helper.make_tensor_value_info(name, kind, [count]) for name in operands]
        outputs.append(helper.make_tensor_value_info(f"z{at}", kind, [count]))
    nodes.append(helper.make_node("Sum", [f"sum{at}" for at in range(len(functions))], ["loss"]))
    outputs.append(helper.make_tensor_value_info("loss", kind, []))
    domains = sorted({each.domain for each in functions} - {""})
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(one, 1) for one in domains)]
    graph = helper.make_graph(nodes, "functions", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def admits(function: Function, dtype: str) -> bool:
    """Whether ONNX has the operator for this type."""
    if function.domain:
        return True
    schema = onnx.defs.get_schema(function.op, OPSET)
    name = {"f16": "float16", "bf16": "bfloat16", "f32": "float", "f64": "double"}[dtype]
    return f"tensor({name})" in schema.type_constraints[0].allowed_type_strs


RANGES = (1e-30, 1e-6, 1.0, 5.0, 20.0, 120.0, 750.0)
NEAR = (0.5, 1.0, 2.0, 3.0, math.pi / 2, math.pi)


def spread(numpy: Any, kinds: int, seed: int = 0) -> Array:
    """Numbers of the whole range of a type with subnormals and NaN, denser near bends."""
    bits = numpy.itemsize * 8
    if bits == 16:
        return np.arange(1 << 16, dtype=np.uint16).view(numpy)
    random = np.random.default_rng(seed)
    step = (1 << bits) // kinds
    every = (np.arange(kinds, dtype=np.uint64) * np.uint64(step)).astype(f"u{bits // 8}")
    every += random.integers(0, step, kinds, np.uint64).astype(every.dtype)
    uniform = random.uniform(-1, 1, kinds // 16)
    near = [
        sign * at * (1 + uniform * 2.0**-power)
        for at in NEAR
        for sign in (1, -1)
        for power in (3, 20, 40)
    ]
    parts = [each.astype(numpy) for each in (*(size * uniform for size in RANGES), *near)]
    info = np.finfo(numpy)
    ends = np.array([0, info.smallest_subnormal, info.tiny, 1, info.max, np.inf, np.nan], numpy)
    return np.concatenate([every.view(numpy), *parts, ends, -ends])
