"""
Writes docs/sizes.md: the operators whose sizes may vary between calls of one program.

`python -m tests.sized_operators > docs/sizes.md` builds a small model of each operator twice, with
an open number of rows and with an open length, and checks whether one program serves all sizes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from popgraph.backends.registry import DEFAULT
from popgraph.compiler.loading import load
from popgraph.compiler.requests import BuildRequest
from popgraph.compiler.sizes import specialise
from popgraph.dialects.program.sizes import sizes_of
from popgraph.passes.options import Options
from popgraph.support.errors import NeedsHostError, PopgraphError, UnsizedError
from popgraph.support.machine import PRESETS
from popgraph.support.tables import markdown_table

HEAD = """# Sizes of operators

A dimension that differs from call to call is a *size of the call* where all operators that it
reaches allow that (see the [guide](guide.md)): one program runs for every size up to a bound.
Otherwise there is a program for each size. To write this page, a small model of each operator was
built twice, for a machine with AVX2, with one open dimension:

* *rows*: the first dimension of the data is open, as the batch is in `x: f32[N, 6, 8]`;
* *length*: an inner one is open, as that of a text or an image is in `x: f32[2, N, 8]`.

*yes* means one program for every size; *from 2*, that one row has a program of its own. Otherwise
the table says what makes the size a part of the program's structure. An empty cell means that the
operator has no such dimension. *Along it* is the same operator along the open dimension. A
model has programs for the parts before and after what Python computes (sequences, strings), and
after results whose size data decide (NonZero).
"""
RECORD = Path(__file__).parent.parent / "docs" / "operators.json"
BOUND, ROWS, LENGTH = 24, 2, 6
DATA = "x: f32[B, L, 8]"
PAIR = f"{DATA}, z: f32[B, L, 8]"
IMAGE = "x: f32[B, 4, L, 9]"


def _each(names: str, inputs: str, body: str) -> dict[str, tuple[str, str]]:
    """Models that differ only in their operator."""
    return {name: (inputs, body.format(name)) for name in names.split()}


MODELS: dict[str, tuple[str, str]] = {
    **_each(
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu "
        "HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round "
        "Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
        DATA,
        "y = {}(x)",
    ),
    **_each(
        "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Pow Sub Sum",
        PAIR,
        "y = {}(x, z)",
    ),
    **_each("And Or Xor", "x: bool[B, L, 8], z: bool[B, L, 8]", "y = {}(x, z)"),
    **_each("BitwiseAnd BitwiseOr BitwiseXor", "x: i32[B, L, 8], z: i32[B, L, 8]", "y = {}(x, z)"),
    **_each("Not", "x: bool[B, L, 8]", "y = {}(x)"),
    **_each("BitwiseNot", "x: i32[B, L, 8]", "y = {}(x)"),
    **_each(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare",
        DATA,
        "y = {}(x, [1], keepdims=0)",
    ),
    **_each("ArgMax ArgMin", DATA, "y = {}(x, axis=1)"),
    **_each("Hardmax LogSoftmax LpNormalization Softmax", DATA, "y = {}(x, axis=1)"),
    **_each("GlobalAveragePool GlobalMaxPool", IMAGE, "y = {}(x)"),
    **_each("AveragePool LpPool MaxPool", IMAGE, "y = {}(x, kernel_shape=[2, 2], strides=[2, 2])"),
    "Attention": (
        "q: f32[B, 2, L, 8], k: f32[B, 2, L, 8], v: f32[B, 2, L, 8]",
        "y = Attention(q, k, v)",
    ),
    "Attention to a cache": (
        "q: f32[B, 2, 1, 8], k: f32[B, 2, L, 8], v: f32[B, 2, L, 8]",
        "y = Attention(q, k, v)",
    ),
    "BatchNormalization": (
        IMAGE,
        "weight s: f32[4] = ones\nweight b: f32[4] = zeros\nweight m: f32[4] = zeros\n"
        "weight v: f32[4] = ones\ny = BatchNormalization(x, s, b, m, v)",
    ),
    "BitShift": ("x: u32[B, L, 8]", 'y = BitShift(x, x, direction="LEFT")'),
    "Cast": (DATA, "y = Cast(x, to=6)"),
    "CastLike": (f"{DATA}, z: i32", "y = CastLike(x, z)"),
    "Clip": (DATA, "y = Clip(x, -1.0, 1.0)"),
    "Concat": (PAIR, "y = Concat(x, z, axis=2)"),
    "Concat along it": (PAIR, "y = Concat(x, z, axis={axis})"),
    "ConstantOfShape": (DATA, "y = ConstantOfShape(Shape(x)) + x"),
    "Conv": (IMAGE, "weight w: f32[5, 4, 3, 3] = he_normal\ny = Conv(x, w, pads=[1, 1, 1, 1])"),
    "ConvTranspose": (IMAGE, "weight w: f32[4, 5, 3, 3] = he_normal\ny = ConvTranspose(x, w)"),
    "CumSum": (DATA, "y = CumSum(x, 1)"),
    "DepthToSpace": (IMAGE, "y = DepthToSpace(x, blocksize=2)"),
    "DequantizeLinear": ("x: u8[B, L, 8]", "y = DequantizeLinear(x, 0.5)"),
    "Det": ("x: f32[B, L, 3, 3]", "y = Det(x)"),
    "Dropout": (DATA, "y = Dropout(x)"),
    "DynamicQuantizeLinear": (DATA, "(y, s, p) = DynamicQuantizeLinear(x)"),
    "Einsum": (PAIR, 'y = Einsum(x, z, equation="bld,bmd->blm")'),
    "Expand": ("x: f32[B, L, 1]", "y = Expand(x, [1, 1, 8])"),
    "EyeLike": ("x: f32[B, 8]", "y = EyeLike(x) + x"),
    "Flatten": (DATA, "y = Flatten(x)"),
    "GRU": (
        "x: f32[L, B, 8]",
        "weight w: f32[1, 12, 8] = normal\nweight r: f32[1, 12, 4] = normal\n"
        "(y, h) = GRU(x, w, r, hidden_size=4)",
    ),
    "Gather from a table": (
        "x: i64[B, L]",
        "weight t: f32[10, 8] = normal\ny = Gather(t, x)",
    ),
    "Gather": (DATA, "y = Gather(x, [0, 3], axis=2)"),
    "Gather along it": (f"{DATA}, i: i64[2]", "y = Gather(x, i, axis={axis})"),
    "GatherElements": (f"{DATA}, i: i64[B, L, 2]", "y = GatherElements(x, i, axis=2)"),
    "GatherND": (f"{DATA}, i: i64[B, 2, 1]", "y = GatherND(x, i, batch_dims=1)"),
    "Gemm": ("x: f32[B, 8]", "weight w: f32[8, 5] = normal\ny = Gemm(x, w)"),
    "GridSample": (f"{IMAGE}, g: f32[B, 5, L, 2]", "y = GridSample(x, g)"),
    "GroupNormalization": (
        IMAGE,
        "weight s: f32[4] = ones\nweight b: f32[4] = zeros\n"
        "y = GroupNormalization(x, s, b, num_groups=2)",
    ),
    "If": (DATA, "y = if ReduceMax(x, keepdims=0) > 0.5 {\n y = x * 2.0\n} else {\n y = -x\n}"),
    "If by another input": (
        f"{DATA}, s: f32",
        "y = if s > 0.5 {\n y = x * 2.0\n} else {\n y = -x\n}",
    ),
    "InstanceNormalization": (
        IMAGE,
        "weight s: f32[4] = ones\nweight b: f32[4] = zeros\ny = InstanceNormalization(x, s, b)",
    ),
    "LRN": (IMAGE, "y = LRN(x, size=3)"),
    "LSTM": (
        "x: f32[L, B, 8]",
        "weight w: f32[1, 16, 8] = normal\nweight r: f32[1, 16, 4] = normal\n"
        "(y, h, c) = LSTM(x, w, r, hidden_size=4)",
    ),
    "LayerNormalization": (
        DATA,
        "weight s: f32[8] = ones\ny = LayerNormalization(x, s, axis=-1)",
    ),
    "Loop": (f"{DATA}, n: i64", "y = loop i in 0..n with y = x {\n y = Tanh(y)\n}"),
    "MatMul with weights": (DATA, "weight w: f32[8, 5] = normal\ny = x @ w"),
    "MatMul of queries and keys": (PAIR, "y = x @ Transpose(z, perm=[0, 2, 1])"),
    "MatMul along it": (
        "x: f32[B, 5, L], z: f32[B, L, 8]",
        "y = x @ z",
    ),
    "MatMulInteger": ("x: u8[B, L, 8]", "weight w: u8[8, 5] = ones\ny = MatMulInteger(x, w)"),
    "MeanVarianceNormalization": (IMAGE, "y = MeanVarianceNormalization(x)"),
    "Mod": ("x: i32[B, L, 8], z: i32[B, L, 8]", "y = Mod(x, z)"),
    "NegativeLogLikelihoodLoss": (
        "x: f32[B, 4, L], t: i64[B, L]",
        "y = NegativeLogLikelihoodLoss(x, t)",
    ),
    "OneHot": ("x: i64[B, L]", "y = OneHot(x, 5, [0.0, 1.0])"),
    "PRelu": (DATA, "weight s: f32[8] = ones\ny = PRelu(x, s)"),
    "Pad": (DATA, "y = Pad(x, [0, 0, 1, 0, 0, 1])"),
    "Pad along it": (DATA, "y = Pad(x, [1, 1, 0, 0, 0, 0])"),
    "QLinearConv": (
        "x: u8[B, 4, L, 9]",
        "weight w: u8[5, 4, 3, 3] = ones\nz = Cast(0, to=2)\n"
        "y = QLinearConv(x, 0.5, z, w, 0.5, z, 0.5, z, pads=[1, 1, 1, 1])",
    ),
    "QLinearMatMul": (
        "x: u8[B, L, 8]",
        "weight w: u8[8, 5] = ones\nz = Cast(0, to=2)\n"
        "y = QLinearMatMul(x, 0.5, z, w, 0.5, z, 0.5, z)",
    ),
    "QuantizeLinear": (DATA, "y = QuantizeLinear(x, 0.5)"),
    "RMSNormalization": (DATA, "weight s: f32[8] = ones\ny = RMSNormalization(x, s)"),
    "RNN": (
        "x: f32[L, B, 8]",
        "weight w: f32[1, 4, 8] = normal\nweight r: f32[1, 4, 4] = normal\n"
        "(y, h) = RNN(x, w, r, hidden_size=4)",
    ),
    "Range": (DATA, "y = x + Unsqueeze(Cast(Range(0, Shape(x)[{axis}], 1), to=1), {others})"),
    "Reshape": (DATA, "y = Reshape(x, [0, 0, 2, 4])"),
    "Reshape that joins it": ("x: f32[B, L, 8]", "y = Reshape(x, [-1, 8])"),
    "Resize": (IMAGE, 'y = Resize(x, scales=[1.0, 1.0, 2.0, 2.0], mode="linear")'),
    "ReverseSequence": (
        "x: f32[B, L, 8], n: i64[B]",
        "y = ReverseSequence(x, n, batch_axis=0, time_axis=1)",
    ),
    "RoiAlign": (
        f"{IMAGE}, r: f32[3, 4], i: i64[3]",
        "y = RoiAlign(x, r, i, output_height=2, output_width=2)",
    ),
    "RotaryEmbedding": (
        "x: f32[B, 2, L, 8], c: f32[B, L, 4], s: f32[B, L, 4]",
        "y = RotaryEmbedding(x, c, s)",
    ),
    "Scan": (
        "x: f32[L, B, 8]",
        "s = x[0] * 0.0\n(h, outs) = loop row in x with h = s {\n h = h + row\n outs = h\n}\n"
        "y = outs",
    ),
    "ScatterElements": (
        f"{DATA}, i: i64[B, L, 2], u: f32[B, L, 2]",
        "y = ScatterElements(x, i, u, axis=2)",
    ),
    "ScatterND": (f"{DATA}, i: i64[3, 1], u: f32[3, L, 8]", "y = ScatterND(x, i, u)"),
    "Shape": (DATA, "y = x * Cast(Shape(x)[{axis}], to=1)"),
    "Size": (DATA, "y = x * Cast(Size(x), to=1)"),
    "Slice": (DATA, "y = x[:, :, 2:6]"),
    "Slice along it": (DATA, "y = x[{slices}]"),
    "SoftmaxCrossEntropyLoss": (
        "x: f32[B, 4, L], t: i64[B, L]",
        'y = SoftmaxCrossEntropyLoss(x, t, reduction="none")',
    ),
    "SoftmaxCrossEntropyLoss, mean": (
        "x: f32[B, 4, L], t: i64[B, L]",
        "y = SoftmaxCrossEntropyLoss(x, t)",
    ),
    "SpaceToDepth": ("x: f32[B, 4, L, 8]", "y = SpaceToDepth(x, blocksize=2)"),
    "Split": (DATA, "(y, z) = Split(x, axis=2, num_outputs=2)"),
    "Squeeze": ("x: f32[B, 1, L, 8]", "y = Squeeze(x, [1])"),
    "Tile": (DATA, "y = Tile(x, [1, 1, 2])"),
    "Tile along it": (DATA, "y = Tile(x, [2, 2, 1])"),
    "TopK": (DATA, "(y, i) = TopK(x, [3], axis=2)"),
    "TopK along it": (DATA, "(y, i) = TopK(x, [1], axis={axis})"),
    "Transpose": (DATA, "y = Transpose(x, perm=[2, 1, 0])"),
    "Trilu": (DATA, "y = Trilu(x)"),
    "Unsqueeze": (DATA, "y = Unsqueeze(x, [1])"),
    "Where": (f"c: bool[B, L, 8], {PAIR}", "y = Where(c, x, z)"),
}
"""The inputs and the body of a model of each operator: B are rows, L is a length."""


@dataclass(frozen=True)
class Probe:
    """A model with one open dimension."""

    operator: str
    letter: str

    @property
    def text(self) -> str:
        """The text of the model; empty without this dimension."""
        inputs, body = MODELS[self.operator]
        if not re.search(rf"\b{self.letter}\b", inputs):
            return ""
        for letter, size in (("B", ROWS), ("L", LENGTH)):
            known = "N" if letter == self.letter else str(size)
            inputs = re.sub(rf"(?<=[\[ ]){letter}(?=[,\]])", known, inputs)
        is_rows = self.letter == "B"
        for mark, rows, length in (
            ("{axis}", "0", "1"),
            ("{others}", "[1, 2]", "[0, 2]"),
            ("{slices}", "1:", ":, 1:"),
        ):
            body = body.replace(mark, rows if is_rows else length)
        outputs = re.findall(r"^\(?([\w, ]+)\)? =", body, re.MULTILINE)[-1]
        return f"opset 24\ngraph probe({inputs}) -> ({outputs}) {{\n{body}\n}}\n"

    def outcome(self) -> str:
        """The cell of the table: one program for all sizes, or the reason why not."""
        if not self.text:
            return ""
        try:
            request = self._request(open_=True, sizes={"N": BOUND})
            request.lower(request.options)
        except UnsizedError as error:
            return error.what
        except NeedsHostError:
            return "computed by Python"
        except PopgraphError as error:
            return f"{type(error).__name__}: {error.what}"
        (size,) = sizes_of(request.module)
        return "yes" if size.least == 1 else f"from {size.least}"

    def _request(self, *, open_: bool, sizes: Mapping[str, int]) -> BuildRequest:
        module, compilation = load(self.text)
        specialise(module, compilation, {} if open_ else sizes, sizes if open_ else {})
        made = BuildRequest(module, compilation, Options(machine=PRESETS["zen3"]), DEFAULT, 1)
        return replace(made, probe=self._at if open_ else None)

    def _at(self, sizes: Mapping[str, int]) -> BuildRequest:
        return self._request(open_=False, sizes=sizes)


def row(operator: str) -> tuple[str, str, str]:
    """A row of the table."""
    return (operator, Probe(operator, "B").outcome(), Probe(operator, "L").outcome())


def unprobed() -> list[str]:
    """The operators of ai.onnx that C computes and that lack a model here."""
    known = json.loads(RECORD.read_text())["operators"]
    probed = {re.split(r"[ ,]", name)[0] for name in MODELS}
    return [
        name
        for name, (cases, _) in known.items()
        if cases and cases.get("C") and name not in probed and "." not in name
    ]


def page() -> Iterator[str]:
    yield HEAD
    yield f"Not tried: {', '.join(unprobed())}.\n"
    yield markdown_table(("operator", "rows", "length"), list(map(row, sorted(MODELS))))


if __name__ == "__main__":
    print("\n".join(page()).rstrip())
