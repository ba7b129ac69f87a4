"""The cases of the benchmark of single operators: attributes, and shapes of real models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
OPSET = 21


@dataclass(frozen=True)
class Case:
    """
    One node, alone in a model.

    An input is a text such as `i64 8x128 <1000`: element type (default f32), shape, and an upper
    bound of integers. A prefix `!` marks an initializer; arrays are initializers, too. None is an
    absent input. Elements without a bound are normally distributed, with `+` in (0, 1).
    """

    operator: str
    inputs: tuple[str | Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    opset: int = OPSET
    outside: tuple[str, ...] = ()
    """Outer values that only bodies read; their names follow those of the node."""
    reason: str = ""
    """The reason why it may take more than 1.25 times as long as with onnxruntime."""

    @property
    def title(self) -> str:
        return f"{self.domain}.{self.operator}" if self.domain else self.operator

    @property
    def text(self) -> str:
        """Inputs and attributes in a line."""
        inputs = ", ".join(map(_text, self.inputs))
        attributes = [f"{name}={_value(value)}" for name, value in self.attributes.items()]
        return " ".join([inputs, *(one for one in attributes if len(one) < 40)])

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The model and its inputs."""
        rng = np.random.default_rng(0)
        names, fed, held, infos = [], {}, [], []
        for place, given in enumerate((*self.inputs, *self.outside)):
            name = "" if given is None else f"x{place}"
            names.append(name)
            if given is None:
                continue
            array = given if isinstance(given, np.ndarray) else _drawn(given.lstrip("!"), rng)
            if isinstance(given, np.ndarray) or given.startswith("!"):
                held.append(numpy_helper.from_array(array, name))
            else:
                fed[name] = array
                number = helper.np_dtype_to_tensor_dtype(array.dtype)
                infos.append(helper.make_tensor_value_info(name, number, array.shape))
        results = [f"y{place}" for place in range(self.outputs)]
        node = helper.make_node(
            self.operator,
            names[: len(self.inputs)],
            results,
            domain=self.domain,
            **self.attributes,
        )
        made = [helper.make_empty_tensor_value_info(name) for name in results]
        graph = helper.make_graph([node], "case", infos, made, held)
        opsets = [helper.make_opsetid("", OPSET if self.domain else self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, self.opset))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10), fed


TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}


def _drawn(text: str, rng: np.random.Generator) -> Array:
    words = text.split()
    dtype = np.dtype(TYPES[words.pop(0)] if words[0] in TYPES else np.float32)
    shape = [] if words[0] == "scalar" else [int(size) for size in words[0].split("x")]
    if "+" in words:
        return np.asarray(rng.uniform(0.01, 0.99, shape).astype(dtype))
    if dtype.kind == "f":
        scale = 1 / max(1.0, float(np.sqrt(np.prod(shape[1:])))) if "w" in words else 1.0
        return np.asarray((scale * rng.standard_normal(shape)).astype(dtype))
    bound = next((int(word[1:]) for word in words if word.startswith("<")), 2)
    return np.asarray(rng.integers(0, bound, shape).astype(dtype))


def _text(given: str | Array | None) -> str:
    if given is None:
        return "-"
    if isinstance(given, np.ndarray):
        return (
            str(_short(given).tolist()) if given.size <= 4 else f"{given.dtype}{list(given.shape)}"
        )
    return given.replace(" w", "").replace(" +", "")


def _short(array: Array) -> Array:
    """The numbers of an array, in f64 if they are floats, so that 0.02 in f32 prints as 0.02."""
    if array.dtype.kind != "f":
        return array
    return np.array([float(str(one)) for one in array.ravel()]).reshape(array.shape)


def _value(value: object) -> str:
    if isinstance(value, onnx.GraphProto):
        return "graph"
    return str(value).replace(" ", "")


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


def one(number: float | int, dtype: str = "f32") -> Array:
    return np.array(number, TYPES[dtype])


def each(operators: str, *inputs: str | Array | None, **more: Any) -> list[Case]:
    """The same case for several operators."""
    return [Case(operator, inputs, **more) for operator in operators.split()]


def conv(x: str, w: str, operator: str = "Conv", reason: str = "", **attributes: Any) -> Case:
    """A convolution with a bias."""
    sizes = [int(size) for size in w.split("x")]
    maps = sizes[0] if operator == "Conv" else sizes[1] * attributes.get("group", 1)
    return Case(operator, (x, f"!{w} w", f"!{maps}"), attributes, reason=reason)


def transposed(x: str, w: str, stride: int, pad: int, extra: int = 0, **more: Any) -> Case:
    windows = {"strides": [stride] * 2, "pads": [pad] * 4, "output_padding": [extra] * 2}
    return conv(x, w, "ConvTranspose", **(windows | more))


def resize(x: str, scales: Sequence[float], mode: str, **attributes: Any) -> Case:
    return Case("Resize", (x, None, floats(*scales)), {"mode": mode, **attributes})


def recurrent(operator: str, steps: int, batch: int, size: int, units: int) -> Case:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    weights = (f"!1x{gates * units}x{size} w", f"!1x{gates * units}x{units} w")
    inputs = (f"{steps}x{batch}x{size}", *weights, f"!1x{2 * gates * units}")
    return Case(operator, inputs, {"hidden_size": units})


def _graph(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]
) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs))


def _value_info(name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _if() -> Case:
    shape = (64, 1024)
    branches = {
        f"{name}_branch": _graph(
            [helper.make_node(operator, ["x1"], [f"{name}_y"])],
            [],
            [_value_info(f"{name}_y", shape)],
        )
        for name, operator in (("then", "Relu"), ("else", "Neg"))
    }
    return Case("If", ("bool scalar",), branches, outside=("64x1024",))


def _scan() -> Case:
    body = _graph(
        [
            helper.make_node("Add", ["state", "row"], ["sum"]),
            helper.make_node("Identity", ["sum"], ["out"]),
        ],
        [_value_info("state", (1024,)), _value_info("row", (1024,))],
        [_value_info("sum", (1024,)), _value_info("out", (1024,))],
    )
    return Case("Scan", ("1024", "64x1024"), {"body": body, "num_scan_inputs": 1}, outputs=2)


def _loop() -> Case:
    body = _graph(
        [
            helper.make_node("Identity", ["condition"], ["go_on"]),
            helper.make_node("Tanh", ["state"], ["next"]),
        ],
        [
            _value_info("turn", (), TensorProto.INT64),
            _value_info("condition", (), TensorProto.BOOL),
            _value_info("state", (4096,)),
        ],
        [_value_info("go_on", (), TensorProto.BOOL), _value_info("next", (4096,))],
    )
    return Case("Loop", (one(16, "i64"), one(True, "bool"), "4096"), {"body": body})


def scattered(operator: str, **more: Any) -> Case:
    return Case(operator, ("1024x256", "i64 128x256 <1024", "128x256"), {"axis": 0}, **more)


QUANTIZED = (one(0.02), one(3, "u8"))
SIGNED = (one(0.02), one(0, "i8"))
BIG, IMAGE, TOKENS = "64x4096", "1x64x56x56", "128x768"
MATHS = (
    "Abs Neg Floor Ceil Round Sign Relu LeakyRelu Elu Selu Celu ThresholdedRelu Shrink "
    "HardSigmoid HardSwish Softsign Softplus Mish Gelu Sigmoid Tanh Exp Erf Sin Cos Tan Sinh Cosh "
    "Asinh Atan"
)
"""Functions on all real numbers."""
POSITIVE = "Log Sqrt Reciprocal Asin Acos Atanh"
REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare"
LOGARITHMS = "ReduceLogSum ReduceLogSumExp"
COMPARISONS = "Equal Greater GreaterOrEqual Less LessOrEqual"
"""Comparisons of two non-constant tensors."""

ELEMENTWISE = [
    *each(MATHS, BIG),
    *each(POSITIVE, f"{BIG} +"),
    Case("Acosh", (BIG,)),
    *each("Add Sub Mul Div Max Min Sum Mean", BIG, BIG),
    *each("Add Mul", BIG, "!4096"),
    *each("Add", IMAGE, "!64x1x1"),
    *each("Add Mul", f"i64 {BIG} <1000", f"i64 {BIG} <1000"),
    Case("Pow", (BIG, one(2.0))),
    Case("Pow", (f"{BIG} +", one(1.7))),
    Case("PRelu", (IMAGE, "!64x1x1")),
    Case("Clip", (BIG, one(0.0), one(6.0))),
    Case("Mod", (f"i64 {BIG} <1000", one(7, "i64"))),
    *each(COMPARISONS, BIG, BIG),
    *each("And Or Xor", f"bool {BIG}", f"bool {BIG}"),
    Case("Not", (f"bool {BIG}",)),
    *each("BitwiseAnd BitwiseOr BitwiseXor", f"i32 {BIG} <999", f"i32 {BIG} <999"),
    Case("BitwiseNot", (f"i32 {BIG} <999",)),
    Case("BitShift", (f"u8 {BIG} <99", f"u8 {BIG} <7"), {"direction": "LEFT"}),
    *each("IsNaN IsInf", BIG),
    Case("Where", (f"bool {BIG}", BIG, BIG)),
    Case("Cast", (BIG,), {"to": TensorProto.FLOAT16}),
    Case("Cast", (f"i64 {BIG} <99",), {"to": TensorProto.FLOAT}),
    Case("Cast", (BIG,), {"to": TensorProto.INT32}),
    Case("CastLike", (BIG, one(0, "i32"))),
    Case("BitCast", (BIG,), {"to": TensorProto.INT32}, opset=26),
    Case("Dropout", (BIG,)),
    Case("Swish", (BIG,), opset=24),
    Case("SwiGLU", (BIG, BIG), opset=28),
]

CONVOLUTIONS = [
    conv("1x3x224x224", "64x3x7x7", strides=[2, 2], pads=[3] * 4),
    conv(IMAGE, "64x64x3x3", pads=[1] * 4),
    conv("1x256x14x14", "256x256x3x3", pads=[1] * 4),
    conv("1x64x56x56", "256x64x1x1"),
    conv("1x1024x14x14", "256x1024x1x1"),
    conv("1x128x56x56", "128x128x3x3", strides=[2, 2], pads=[1] * 4),
    conv("1x96x56x56", "96x1x3x3", group=96, pads=[1] * 4),
    conv("1x512x14x14", "512x1x3x3", group=512, pads=[1] * 4),
    conv("1x240x28x28", "240x1x5x5", group=240, pads=[2] * 4, strides=[2, 2]),
    conv("1x768x32x32", "768x1x7x7", group=768, pads=[3] * 4),
    conv("1x512x32x32", "512x1x9x9", group=512, pads=[4] * 4),
    conv("1x384x16x16", "384x1x11x11", group=384, pads=[5] * 4),
    conv("8x512x4x4", "100x512x4x4"),
    conv("1x240x14x14", "240x10x3x3", group=24, pads=[1] * 4),
    conv("1x64x28x28", "64x64x3x3", dilations=[2, 2], pads=[2] * 4),
    conv("1x64x64x64", "3x64x3x3", pads=[1] * 4),
    conv("1x80x1000", "512x80x3", pads=[1] * 2),
    conv("1x16x16x32x32", "32x16x3x3x3", pads=[1] * 6),
    transposed("1x64x64x64", "64x3x4x4", 2, 1),
    transposed("1x512x4x4", "512x256x4x4", 2, 1),
    transposed("1x512x8x8", "512x256x4x4", 2, 1),
    transposed("1x128x32x32", "128x64x4x4", 2, 1),
    transposed("1x64x28x28", "64x32x2x2", 2, 0),
    transposed("1x64x28x28", "64x32x3x3", 2, 1, 1),
    transposed("1x32x56x56", "32x1x9x9", 4, 4, 3),
    transposed("1x21x16x16", "21x21x16x16", 8, 4),
    transposed("1x64x28x28", "64x1x4x4", 2, 1, group=64),
    transposed("1x64x28x28", "64x64x3x3", 1, 1),
    transposed("1x100x1x1", "100x512x4x4", 1, 0),
    transposed("8x100x1x1", "100x512x4x4", 1, 0),
    Case("MaxPool", ("1x64x112x112",), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    Case("MaxPool", ("1x64x56x56",), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case(
        "MaxPool",
        ("1x64x56x56",),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        outputs=2,
    ),
    Case("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "pads": [1] * 4}),
    Case("LpPool", (IMAGE,), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    *each("GlobalAveragePool GlobalMaxPool", "1x2048x7x7"),
    Case(
        "MaxUnpool",
        ("1x16x28x28", (4 * np.arange(16 * 28 * 28, dtype=np.int64)).reshape(1, 16, 28, 28)),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Case("Col2Im", ("1x144x3136", ints(56, 56), ints(3, 3)), {"pads": [1] * 4}),
    Case(
        "DeformConv",
        ("1x32x28x28", "!32x32x3x3 w", "1x18x28x28 +"),
        {"pads": [1] * 4, "kernel_shape": [3, 3]},
        opset=19,
    ),
    Case(
        "CausalConvWithState",
        ("1x256x128", "!256x1x4 w"),
        {},
        outputs=2,
        opset=27,
    ),
]

MATRICES = [
    *(
        Case("MatMul", (a, f"!{b} w"))
        for a, b in (("128x768", "768x3072"), ("1x4096", "4096x4096"))
    ),
    Case("MatMul", ("12x128x64", "12x64x128")),
    Case("MatMul", ("8x512x64", "8x64x512")),
    Case("Gemm", ("1x2048", "!1000x2048 w", "!1000"), {"transB": 1}),
    Case("Gemm", ("64x256", "!256x256 w", "!256")),
    Case("Einsum", ("8x128x64", "8x128x64"), {"equation": "bid,bjd->bij"}),
    Case("MatMulInteger", ("u8 128x768 <255", "!i8 768x768 <127")),
    Case("ConvInteger", ("u8 1x64x28x28 <255", "!u8 64x64x3x3 <255"), {"pads": [1] * 4}),
    Case(
        "QLinearMatMul",
        ("u8 128x768 <255", *QUANTIZED, "!i8 768x768 <127", *SIGNED, *QUANTIZED),
    ),
    Case(
        "QLinearConv",
        ("u8 1x64x28x28 <255", *QUANTIZED, "!i8 64x64x3x3 <127", *SIGNED, *QUANTIZED),
        {"pads": [1] * 4},
    ),
    Case("Det", ("64x8x8",)),
    Case(
        "Attention",
        ("1x8x128x64", "1x8x128x64", "1x8x128x64"),
        {},
        opset=23,
    ),
    Case(
        "LinearAttention",
        ("1x64x256",) * 3,
        {"q_num_heads": 8, "kv_num_heads": 8, "update_rule": "linear"},
        outputs=2,
        opset=27,
    ),
    recurrent("LSTM", 64, 1, 128, 128),
    recurrent("LSTM", 16, 16, 64, 256),
    recurrent("GRU", 64, 1, 128, 128),
    recurrent("RNN", 64, 1, 128, 128),
]

NORMALIZATIONS = [
    *each("Softmax LogSoftmax Hardmax", "1536x128"),
    *each("Softmax", "64x1000"),
    Case("Softmax", ("1x21x64x64",), {"axis": 1}),
    Case("LayerNormalization", (TOKENS, "!768", "!768")),
    Case("RMSNormalization", (TOKENS, "!768"), opset=23),
    Case("SimplifiedLayerNormalization", (TOKENS, "!768"), opset=1),
    Case("BatchNormalization", (IMAGE, "!64", "!64", "!64", "!64 +")),
    Case("InstanceNormalization", (IMAGE, "!64", "!64")),
    Case("GroupNormalization", (IMAGE, "!64", "!64"), {"num_groups": 32}),
    Case("LRN", (IMAGE,), {"size": 5}),
    Case("LpNormalization", (TOKENS,)),
    Case("MeanVarianceNormalization", (IMAGE,)),
    Case("NegativeLogLikelihoodLoss", ("64x1000", "i64 64 <1000")),
    Case("SoftmaxCrossEntropyLoss", ("64x1000", "i64 64 <1000")),
    *each(REDUCTIONS, BIG, ints(1)),
    *each(LOGARITHMS, f"{BIG} +", ints(1)),
    *each("ReduceSum ReduceMean ReduceMax", BIG, ints(0)),
    *each("ReduceMean", IMAGE, ints(2, 3)),
    Case("ArgMax", (BIG,), {"axis": 1}),
    Case("ArgMax", ("1x21x64x64",), {"axis": 1}),
    Case("ArgMin", (BIG,), {"axis": 1}),
    Case("NonZero", ("bool 1024x64 <2",)),
    Case("Compress", (BIG, "bool 4096 <2"), {"axis": 1}),
    Case("Unique", ("i64 65536 <1000",), outputs=4),
    Case(
        "NonMaxSuppression",
        ("1x8400x4 +", "1x1x8400 +", ints(300), floats(0.45), floats(0.25)),
        {"center_point_box": 1},
    ),
    Case("TopK", (BIG, ints(5)), outputs=2),
    Case("TopK", ("1x8400", ints(300)), outputs=2),
    Case("TopK", ("1x8400", ints(8400)), outputs=2),
    Case("TopK", ("1x100000", ints(100000)), outputs=2),
    *each("CumSum", "64x1024", one(1, "i64")),
    *each("CumSum", "64x1024", one(0, "i64")),
    Case("CumProd", ("64x1024", one(1, "i64")), opset=26),
]

MOVEMENTS = [
    *each("Identity Flatten", BIG),
    Case("Reshape", (BIG, ints(4096, 64))),
    Case("Squeeze", ("1x64x4096", ints(0))),
    Case("Unsqueeze", (BIG, ints(0))),
    *each("Shape Size", BIG),
    Case("Transpose", ("512x1024",)),
    Case("Transpose", ("1x128x12x64",), {"perm": [0, 2, 1, 3]}),
    Case("Transpose", ("1x64x56x56",), {"perm": [0, 2, 3, 1]}),
    Case("Concat", ("1x64x56x56", "1x64x56x56"), {"axis": 1}),
    Case("Concat", ("64x2048", "64x2048"), {"axis": 1}),
    Case("Split", ("64x4096",), {"axis": 1, "num_outputs": 2}, outputs=2),
    Case("Slice", (BIG, ints(0), ints(4096), ints(1), ints(2))),
    Case("Slice", (IMAGE, ints(4, 4), ints(52, 52), ints(2, 3))),
    Case("Pad", (IMAGE, ints(0, 0, 1, 1, 0, 0, 1, 1))),
    Case("Pad", (IMAGE, ints(0, 0, 2, 2, 0, 0, 2, 2)), {"mode": "reflect"}),
    Case("Tile", ("64x256", ints(1, 8))),
    Case("Expand", ("64x1x256", ints(64, 16, 256))),
    Case("CenterCropPad", (IMAGE, ints(48, 48)), {"axes": [2, 3]}),
    Case("DepthToSpace", ("1x64x56x56",), {"blocksize": 2}),
    Case("DepthToSpace", ("1x12x256x256",), {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", ("1x16x112x112",), {"blocksize": 2}),
    Case("Trilu", ("8x256x256",)),
    Case("EyeLike", ("512x512",)),
    Case("ReverseSequence", ("64x32x64", "i64 32 <64"), {"time_axis": 0, "batch_axis": 1}),
    Case("Gather", ("!10000x256", "i64 128 <10000")),
    Case("Gather", ("64x1024", "i64 256 <1024"), {"axis": 1}),
    Case("GatherElements", ("64x1024", "i64 64x256 <1024"), {"axis": 1}),
    Case("GatherND", ("64x64x128", "i64 256x2 <64")),
    scattered("ScatterElements"),
    scattered("Scatter", opset=10),
    Case("ScatterND", ("1024x256", "i64 128x1 <1024", "128x256")),
    Case("TensorScatter", ("1x8x512x64", "1x8x16x64", "i64 1 <256"), opset=24),
    Case("OneHot", ("i64 256 <1000", one(1000, "i64"), floats(0, 1))),
    Case("ConstantOfShape", (ints(64, 4096),)),
    Case("Range", (one(0, "i64"), one(65536, "i64"), one(1, "i64"))),
    Case("Constant", (), {"value": numpy_helper.from_array(np.zeros((64, 4096), np.float32))}),
    *each("BlackmanWindow HammingWindow HannWindow", one(4096, "i64")),
    Case("MelWeightMatrix", (*(one(n, "i64") for n in (80, 400, 16000)), one(20.0), one(8e3))),
    resize("1x64x56x56", (1, 1, 2, 2), "nearest", coordinate_transformation_mode="asymmetric"),
    resize("1x64x28x28", (1, 1, 2, 2), "nearest"),
    resize("1x64x56x56", (1, 1, 1.5, 1.5), "nearest"),
    resize("1x3x256x256", (1, 1, 0.5, 0.5), "nearest"),
    resize("1x64x56x56", (1, 1, 2, 2), "linear"),
    resize("1x64x56x56", (1, 1, 2, 2), "linear", coordinate_transformation_mode="align_corners"),
    resize("1x3x480x640", (1, 1, 0.35, 0.35), "linear"),
    resize("1x3x240x320", (1, 1, 1.7, 1.7), "linear"),
    resize("1x3x112x112", (1, 1, 2, 2), "cubic"),
    Case("Upsample", ("1x64x28x28", floats(1, 1, 2, 2)), opset=9),
    Case("GridSample", ("1x16x64x64", "1x64x64x2 +")),
    Case("AffineGrid", ("4x2x3", ints(4, 3, 64, 64))),
    Case(
        "RoiAlign",
        ("1x64x50x50", "16x4 +", "i64 16 <1"),
        {"output_height": 7, "output_width": 7, "sampling_ratio": 2},
    ),
    Case("DFT", ("8x512x1",), {"onesided": 1}),
    Case("DFT", ("8x400x2",)),
    Case("STFT", ("1x16000x1", one(160, "i64"), "!512")),
    Case("RotaryEmbedding", ("1x8x128x64", "!1024x32", "!1024x32", "i64 1x128 <1024"), opset=23),
]

QUANTIZATIONS = [
    Case("QuantizeLinear", (BIG, *QUANTIZED)),
    Case("DequantizeLinear", (f"u8 {BIG} <255", *QUANTIZED)),
    Case("DynamicQuantizeLinear", (BIG,), outputs=3),
    *each("Bernoulli RandomNormalLike RandomUniformLike", f"{BIG} +"),
    *(Case(name, (), {"shape": [64, 4096]}) for name in ("RandomNormal", "RandomUniform")),
]

CONTROL = [_if(), _scan(), _loop()]

ML = "ai.onnx.ml"


def _trees(operator: str, count: int = 100, depth: int = 6) -> Case:
    """Complete trees over thirty features."""
    rng = np.random.default_rng(0)
    inner, size = 2**depth - 1, 2 ** (depth + 1) - 1
    ids = np.arange(size)
    is_inner = ids < inner
    leaves = ids[inner:]
    kind = "class" if operator.endswith("Classifier") else "target"
    attributes: dict[str, Any] = {
        "nodes_treeids": np.repeat(np.arange(count), size).tolist(),
        "nodes_nodeids": np.tile(ids, count).tolist(),
        "nodes_featureids": rng.integers(0, 30, count * size).tolist(),
        "nodes_values": rng.standard_normal(count * size).tolist(),
        "nodes_modes": ["BRANCH_LEQ" if one else "LEAF" for one in is_inner] * count,
        "nodes_truenodeids": np.tile(np.where(is_inner, 2 * ids + 1, 0), count).tolist(),
        "nodes_falsenodeids": np.tile(np.where(is_inner, 2 * ids + 2, 0), count).tolist(),
        f"{kind}_treeids": np.repeat(np.arange(count), len(leaves)).tolist(),
        f"{kind}_nodeids": np.tile(leaves, count).tolist(),
        f"{kind}_ids": [0] * (count * len(leaves)),
        f"{kind}_weights": rng.standard_normal(count * len(leaves)).tolist(),
    }
    if kind == "class":
        attributes |= {"classlabels_int64s": [0, 1], "post_transform": "LOGISTIC"}
    else:
        attributes["n_targets"] = 1
    outputs = 2 if kind == "class" else 1
    return Case(operator, ("256x30",), attributes, outputs=outputs, domain=ML, opset=3)


def _vectors(operator: str) -> Case:
    rng = np.random.default_rng(0)
    attributes: dict[str, Any] = {
        "kernel_type": "RBF",
        "kernel_params": [0.1, 0.0, 3.0],
        "support_vectors": rng.standard_normal(200 * 30).tolist(),
        "coefficients": rng.standard_normal(200).tolist(),
        "rho": [0.1],
    }
    if operator == "SVMRegressor":
        attributes["n_supports"] = 200
    else:
        attributes |= {"vectors_per_class": [100, 100], "classlabels_ints": [0, 1]}
    outputs = 2 if operator == "SVMClassifier" else 1
    return Case(operator, ("256x30",), attributes, outputs=outputs, domain=ML, opset=1)


def ml(operator: str, *inputs: str, opset: int = 1, outputs: int = 1, **attributes: Any) -> Case:
    return Case(operator, inputs, attributes, outputs, ML, opset)


CLASSES: dict[str, Any] = {"classlabels_ints": list(range(10))}
COEFFICIENTS = np.random.default_rng(1).standard_normal(640).tolist()
CLASSICAL = [
    ml("ArrayFeatureExtractor", "256x64", "i64 16 <64"),
    ml("Binarizer", "256x64", threshold=0.5),
    ml("FeatureVectorizer", "256x32", "256x16", inputdimensions=[32, 16]),
    ml("Imputer", "256x64", imputed_value_floats=[0.5], replaced_value_float=0.0),
    ml(
        "LabelEncoder",
        "i64 4096 <64",
        opset=2,
        keys_int64s=list(range(64)),
        values_floats=[float(n) for n in range(64)],
    ),
    ml(
        "LinearClassifier",
        "256x64",
        outputs=2,
        coefficients=COEFFICIENTS,
        intercepts=[0.0] * 10,
        **CLASSES,
    ),
    ml("LinearRegressor", "256x64", coefficients=COEFFICIENTS[:64], intercepts=[0.5]),
    ml("Normalizer", "256x64", norm="L2"),
    ml("OneHotEncoder", "i64 4096 <16", cats_int64s=list(range(16))),
    ml("Scaler", "256x64", offset=[0.5], scale=[2.0]),
    *map(_vectors, ("SVMClassifier", "SVMRegressor")),
    *map(_trees, ("TreeEnsembleClassifier", "TreeEnsembleRegressor")),
]

MICROSOFT = "com.microsoft"


def ms(operator: str, *inputs: str | Array | None, outputs: int = 1, **attributes: Any) -> Case:
    return Case(operator, inputs, attributes, outputs, MICROSOFT, 1)


CONTRIBUTED = [
    *(ms(name, TOKENS) for name in ("Gelu", "FastGelu", "QuickGelu")),
    ms("BiasGelu", TOKENS, "!768"),
    ms("BiasSoftmax", "8x128x128", "1x128x128", axis=2, is_inner_broadcast=0),
    ms("Attention", "1x128x768", "!768x2304 w", "!2304", num_heads=12),
    ms("MultiHeadAttention", *["1x128x512"] * 3, num_heads=8),
    ms("SkipLayerNormalization", "1x128x768", "1x128x768", "!768", "!768"),
    ms("SkipSimplifiedLayerNormalization", "1x128x768", "1x128x768", "!768"),
    ms("FusedMatMul", "12x128x64", "12x128x64", transB=1, alpha=0.125),
    ms("FusedConv", IMAGE, "!64x64x3x3 w", "!64", pads=[1] * 4, activation="Relu"),
    ms("FusedGemm", "64x256", "!256x256 w", "!256", activation="Relu"),
    ms("RotaryEmbedding", "1x128x512", "i64 1x128 <128", "!128x32", "!128x32"),
    ms("QuantizeLinear", BIG, *QUANTIZED),
    ms("DequantizeLinear", f"u8 {BIG} <255", *QUANTIZED),
    ms("DynamicQuantizeMatMul", TOKENS, "!u8 768x768 <255", one(0.02), one(128, "u8")),
    ms(
        "MatMulIntegerToFloat",
        "u8 128x768 <255",
        "!u8 768x768 <255",
        one(0.02),
        one(0.02),
        one(3, "u8"),
        one(128, "u8"),
    ),
    ms("QLinearAdd", "u8 64x4096 <255", *QUANTIZED, "u8 64x4096 <255", *QUANTIZED, *QUANTIZED),
    ms("QLinearMul", "u8 64x4096 <255", *QUANTIZED, "u8 64x4096 <255", *QUANTIZED, *QUANTIZED),
    ms("QLinearSigmoid", "u8 64x4096 <255", *QUANTIZED, *QUANTIZED),
    ms("QLinearLeakyRelu", "u8 64x4096 <255", *QUANTIZED, *QUANTIZED, alpha=0.1),
    ms("QLinearSoftmax", "u8 512x128 <255", *QUANTIZED, *QUANTIZED, opset=13),
    ms("QLinearGlobalAveragePool", "u8 1x512x7x7 <255", *QUANTIZED, *QUANTIZED),
    ms(
        "QLinearConcat",
        *QUANTIZED,
        "u8 1x64x56x56 <255",
        *QUANTIZED,
        "u8 1x64x56x56 <255",
        *QUANTIZED,
        axis=1,
    ),
    ms(
        "QGemm",
        "u8 64x256 <255",
        *QUANTIZED,
        "!i8 256x256 <127",
        *SIGNED,
        None,
        *QUANTIZED,
    ),
]

WIDE, NHWC, SENTENCE = "1x128x768", "1x56x56x64", "i32 1x128 <99"
NORMS = ("!768", "!768")
BLOCKS = {"K": 768, "N": 768, "block_size": 32}
EMBEDDINGS = ("1000x768", "512x768", "2x768")
LANGUAGE_MODELS = [
    ms("CausalConvWithState", "1x256x128", "!256x1x4", outputs=2),
    ms(
        "LinearAttention",
        *("1x64x256", "1x64x256", "1x64x256"),
        outputs=2,
        q_num_heads=8,
        kv_num_heads=8,
        update_rule="linear",
    ),
    ms(
        "MRotaryEmbedding",
        *("1x128x512", "i64 3x1x128 <128", "!128x32", "!128x32"),
        num_heads=8,
        mrope_section=[16, 8, 8],
    ),
    ms("MoE", TOKENS, "128x8", "!8x256x768 w", None, "!8x768x256 w", k=2, activation_type="silu"),
    ms("MoEGroupRouter", "128x64", "64", n_group=8, topk_group=4, top_k=8),
    ms(
        "QMoE",
        *(TOKENS, "128x8"),
        *("!u8 8x256x384 <255", "!8x256 +", None, "!u8 8x768x128 <255", "!8x768 +"),
        k=2,
        activation_type="silu",
        expert_weight_bits=4,
    ),
    ms(
        "SparseAttention",
        *("1x128x512", "1x128x512", "1x128x512", "1x8x128x64", "1x8x128x64"),
        np.array([[0, 1, 3]], np.int32),
        np.array([[0, 0, 1]], np.int32),
        one(128, "i32"),
        np.array([128], np.int32),
        outputs=3,
        num_heads=8,
        kv_num_heads=8,
        sparse_block_size=64,
    ),
    ms("MaxpoolWithMask", IMAGE, "i32 1x1x56x56 <2", kernel_shape=[2, 2], strides=[2, 2]),
    ms("MurmurHash3", f"i32 {BIG} <9999"),
    ms(
        "NGramHashMapping",
        "i64 8x128 <999",
        np.array([3, 5, 7, 11], np.int64),
        np.array([1009, 1013, 1019, 1021, 1031, 1033], np.int64),
        max_ngram_size=4,
        n_head_per_ngram=2,
        pad_id=2,
        outputs=2,
    ),
    ms("Unique", "4096 +", outputs=3),
    ms("WordConvEmbedding", "i32 32x16 <64", "!64x1x3x16 w", "!64", "!64x16"),
]
LIMITS = np.array([0, 100, 256], np.int32)
"""Lengths of two concatenated sequences."""
DECODERS = [
    ms(
        "DecoderMaskedMultiHeadAttention",
        *("4x1x512", "4x8x128x64", "4x8x128x64"),
        num_heads=8,
    ),
    ms(
        "GatedDeltaNet",
        *("256x4x64", "256x4x64 w", "256x8x64", LIMITS, None, "256x8 +", "2x8x64x64 w"),
        outputs=2,
        update_rule="delta",
        qk_l2_norm=1,
    ),
    ms(
        "VarlenCausalConvWithState",
        *("256x256", "!256x1x4", LIMITS, None, "2x256x3"),
        outputs=2,
    ),
    ms(
        "VarlenNGramHashMapping",
        "i64 256 <999",
        np.array([3, 5, 7, 11], np.int64),
        np.array([1009, 1013, 1019, 1021, 1031, 1033], np.int64),
        LIMITS,
        max_ngram_size=4,
        n_head_per_ngram=2,
        pad_id=2,
        outputs=2,
    ),
    ms(
        "AttnLSTM",
        *("32x2x64", "!1x512x128 w", "!1x512x128 w", "!1x1024", None, None, None, None),
        *("!1x128x32 w", "!1x64x32 w", "!1x32", "2x40x64"),
        hidden_size=128,
        outputs=3,
    ),
    ms("DynamicTimeWarping", "64x200"),
    ms("BifurcationDetector", "i64 64 <9", "i64 4 <9", np.array([0]), "i64 65 <9", outputs=2),
    ms("GatherPacked", "!u8 1000x576 <60", "i32 64 <1000", packed_type=2, K=1024, output_dtype=1),
]
CONTRIBUTED_BESIDE = [
    ms("BiasDropout", WIDE, "!768", WIDE),
    ms("CDist", "256x64", "256x64", metric="sqeuclidean"),
    ms(
        "ConvTransposeWithDynamicPads",
        "1x64x28x28",
        "!64x32x3x3 w",
        ints(1, 1, 1, 1),
        strides=[2, 2],
        output_padding=[1, 1],
    ),
    ms("CropAndResize", "1x64x50x50", "16x4 +", "i32 16 <1", np.array([7, 7], np.int32)),
    ms(
        "DynamicQuantizeLSTM",
        "64x1x128",
        "!i8 1x128x512 <127",
        "!i8 1x128x512 <127",
        "!1x1024",
        *[None] * 4,
        floats(0.01),
        np.zeros(1, np.int8),
        floats(0.01),
        np.zeros(1, np.int8),
        hidden_size=128,
    ),
    ms(
        "EmbedLayerNormalization",
        *(SENTENCE, "i32 1x128 <2", *(f"!{table}" for table in EMBEDDINGS), *NORMS),
        outputs=2,
    ),
    ms("ExpandDims", "64x1024", one(1, "i32")),
    ms(
        "GatherBlockQuantized",
        "!u8 1000x384 <255",
        "i64 128 <1000",
        "!1000x24 +",
        bits=4,
        block_size=32,
        gather_axis=0,
        quantize_axis=1,
    ),
    ms("GatherND", "64x64x128", "i64 256x2 <64"),
    ms("GridSample", "1x16x64x64", "1x64x64x2 +"),
    ms(
        "GroupQueryAttention",
        *("1x128x512", "1x128x256", "1x128x256", None, None),
        np.array([127], np.int32),
        np.array(128, np.int32),
        num_heads=8,
        kv_num_heads=4,
        outputs=3,
    ),
    ms("Inverse", "64x8x8"),
    ms(
        "MatMulBnb4",
        TOKENS,
        f"!u8 {768 * 768 // 2} <255",
        f"!{768 * 768 // 64} +",
        K=768,
        N=768,
        block_size=64,
        quant_type=1,
    ),
    ms("MatMulInteger16", "i16 128x768 <999", "i16 768x768 <999"),
    ms("MatMulNBits", TOKENS, "!u8 768x24x16 <255", "!768x24 +", bits=4, **BLOCKS),
    ms("MatMulNBits", "1x768", "!u8 768x24x16 <255", "!768x24 +", bits=4, **BLOCKS),
    ms("NGramRepeatBlock", "i64 4x64 <99", "4x1000", ngram_size=3),
    ms("NhwcConv", NHWC, "!64x64x3x3 w", "!64", pads=[1] * 4),
    ms("NhwcFusedConv", NHWC, "!64x64x3x3 w", "!64", pads=[1] * 4, activation="Relu"),
    ms("NhwcMaxPool", f"u8 {NHWC} <255", kernel_shape=[2, 2], strides=[2, 2]),
    ms("Pad", IMAGE, ints(0, 0, 1, 1, 0, 0, 1, 1), mode="constant"),
    ms(
        "QAttention",
        *(f"u8 {WIDE} <255", "!i8 768x2304 <127", "!2304", one(0.02), one(0.02)),
        *(None, one(128, "u8"), one(0, "i8")),
        num_heads=12,
    ),
    ms(
        "QEmbedLayerNormalization",
        *(SENTENCE, "i32 1x128 <2", *(f"!u8 {table} <255" for table in EMBEDDINGS)),
        *("!u8 768 <255", "!u8 768 <255", None, *[one(0.02)] * 5, *[one(128, "u8")] * 5),
        outputs=2,
    ),
    ms(
        "QLinearAveragePool",
        f"u8 {IMAGE} <255",
        *QUANTIZED,
        *QUANTIZED,
        kernel_shape=[3, 3],
        pads=[1] * 4,
    ),
    ms(
        "QLinearConv",
        *("u8 1x64x28x28 <255", *QUANTIZED, "!i8 64x64x3x3 <127", *SIGNED, *QUANTIZED),
        pads=[1] * 4,
    ),
    ms(
        "QLinearWhere",
        *(f"bool {BIG}", f"u8 {BIG} <255", *QUANTIZED, f"u8 {BIG} <255", *QUANTIZED, *QUANTIZED),
    ),
    ms("Range", one(0.0), one(65536.0), one(1.0)),
    ms("SampleOp", BIG),
    ms("TransposeMatMul", "12x128x64", "12x128x64", transB=1, alpha=0.125),
    ms("Trilu", "8x256x256"),
    ms("ScaledSiLU", TOKENS, alpha=1.5),
    ms("GatedAdd", TOKENS, TOKENS, "128x1"),
    ms("GatedRMSNorm", TOKENS, "!768", TOKENS),
    ms("LinearAttentionGate", "1x128x64", "!64", "!64", "1x128x64", outputs=2),
    ms("BranchwiseRMSNorm", "1x128x4x768", "!768"),
    ms("HyperConnectionPreMix", "1x128x4x768", "1x128x4"),
    ms("HyperConnectionPostMix", "1x128x4x768", WIDE, "1x128x4", "1x128x4x4"),
    ms("EngramGate", "1x128x4x768", "1x128x4x768", WIDE, "!4x768", "!4x768"),
    ms("UnfoldTensor", "64x4096", dim=-1, size=16, step=8),
    *LANGUAGE_MODELS,
]


def _tree() -> Case:
    """Complete trees in the form of TreeEnsemble (ai.onnx.ml 5)."""
    rng = np.random.default_rng(0)
    count, inner = 100, 63
    total, leaves = count * inner, count * (inner + 1)
    places = np.arange(inner)
    is_last = places >= inner // 2
    start = inner * np.arange(count)[:, None]
    leaf = (inner + 1) * np.arange(count)[:, None]
    true = np.where(is_last, leaf + 2 * (places - inner // 2), start + 2 * places + 1)
    false = true + 1
    attributes: dict[str, Any] = {
        "n_targets": 1,
        "tree_roots": start.ravel().tolist(),
        "nodes_featureids": rng.integers(0, 30, total).tolist(),
        "nodes_splits": numpy_helper.from_array(rng.standard_normal(total).astype(np.float32)),
        "nodes_modes": numpy_helper.from_array(np.zeros(total, np.uint8)),
        "nodes_truenodeids": true.ravel().tolist(),
        "nodes_falsenodeids": false.ravel().tolist(),
        "nodes_trueleafs": np.tile(is_last, count).astype(int).tolist(),
        "nodes_falseleafs": np.tile(is_last, count).astype(int).tolist(),
        "leaf_targetids": [0] * leaves,
        "leaf_weights": numpy_helper.from_array(rng.standard_normal(leaves).astype(np.float32)),
    }
    return Case("TreeEnsemble", ("256x30",), attributes, domain=ML, opset=5)


RARE = [
    Case("GlobalLpPool", ("1x2048x7x7",)),
    Case("MaxRoiPool", ("1x64x50x50", "16x5 +"), {"pooled_shape": [7, 7]}),
    Case("Multinomial", ("64x1000",), {"sample_size": 16}),
    *each("OptionalGetElement OptionalHasElement", BIG),
    _tree(),
]

CASES: tuple[Case, ...] = (
    *ELEMENTWISE,
    *CONVOLUTIONS,
    *MATRICES,
    *NORMALIZATIONS,
    *MOVEMENTS,
    *QUANTIZATIONS,
    *CONTROL,
    *CLASSICAL,
    *CONTRIBUTED,
    *DECODERS,
    *CONTRIBUTED_BESIDE,
    *RARE,
)
"""All cases."""

TRAINING = "ai.onnx.preview.training"
SEQUENCES = ("At", "Construct", "Empty", "Erase", "Insert", "Length", "Map")
ABSENT = frozenset(
    {
        "ai.onnx.preview.FlexAttention",
        *(f"{TRAINING}.{name}" for name in ("Adagrad", "Adam", "Gradient", "Momentum")),
        f"{MICROSOFT}.GreedySearch",
        *("ConcatFromSequence", "Optional", "SplitToSequence", "TfIdfVectorizer"),
        *(f"Sequence{name}" for name in SEQUENCES),
    }
)
"""
Compiled operators without a case: onnxruntime lacks them, or they run a whole network.

Sequence operators compute nothing; TfIdfVectorizer has no case yet.
"""

INTEGERS = "exact, in floats; the machine's dot products of integers are not used yet"
ROUNDING = (
    "a division, and a conversion to int8 that is correct for values of any size, as in NumPy"
)
LOOKED_UP = "looks up rows of the tables in a separate pass"
ROUNDS = "passes over the whole tensor several times; a loop over rows would pass once"
REASONS = {
    **dict.fromkeys(("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"), INTEGERS),
    **{
        f"{MICROSOFT}.{name}": INTEGERS
        for name in (
            *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QAttention"),
            *("QLinearConv", "DynamicQuantizeLSTM", "MatMulInteger16"),
        )
    },
    **dict.fromkeys(("QuantizeLinear", "DynamicQuantizeLinear"), ROUNDING),
    **{
        f"{MICROSOFT}.{name}": ROUNDING
        for name in (
            *("QuantizeLinear", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu"),
        )
    },
    "CumSum": ROUNDS,
    "Col2Im": "adds elements one by one at indices that are looked up",
    "MaxUnpool": "adds elements one by one at indices that are looked up",
    "GatherElements": "checks and looks up indices one by one",
    "EyeLike": "copies a constant, which is read and written",
    "MaxRoiPool": "compares each element of an image with the bounds of each cell",
    "Multinomial": "draws by a generator that gives the same numbers on every machine",
    "Range": "counts in 64 bits, then converts",
    "Tile": "each repetition is a separate loop over a short row",
    "RotaryEmbedding": LOOKED_UP,
    "ai.onnx.ml.LabelEncoder": "binary search for one key at a time",
    "Det": "each step of the elimination is a pass over all matrices, with a choice of pivots",
    "Exp": "accurate to 0.9 units in the last place down to the smallest numbers: 17 instructions",
    "Softmax": "exponentials accurate to 0.9 units in the last place: half of the time",
    "TopK": "more than 32,768 results are sorted by a heap",
    f"{MICROSOFT}.QLinearConcat": "operands are in memory as floats between two passes",
    f"{MICROSOFT}.CropAndResize": "looks up four elements for each result and checks their indices",
    f"{MICROSOFT}.NhwcMaxPool": "computes maxima of bytes one by one",
    f"{MICROSOFT}.MoE": "computes all experts, with weight 0 for experts that are not chosen",
    f"{MICROSOFT}.QMoE": "computes all experts, with weight 0 for experts that are not chosen",
    f"{MICROSOFT}.MaxpoolWithMask": "the ends of windows are tensors between several passes",
    f"{MICROSOFT}.Unique": "Python computes it",
    f"{MICROSOFT}.RotaryEmbedding": LOOKED_UP,
    f"{MICROSOFT}.GatherBlockQuantized": "unpacks bytes in a separate pass",
    f"{MICROSOFT}.GatherPacked": "unpacks bytes in several passes",
    f"{MICROSOFT}.DynamicTimeWarping": "Python extracts the path from the results of a loop",
    f"{MICROSOFT}.BifurcationDetector": "Python extracts the accepted tokens",
    f"{MICROSOFT}.LinearAttention": "each time step calls separate kernels",
    f"{MICROSOFT}.CDist": "accumulates squared differences; a matmul would lose digits",
    f"{MICROSOFT}.NGramRepeatBlock": "each n-gram is compared with all of the vocabulary",
    f"{MICROSOFT}.FusedMatMul": "a varying operand is transposed into panels in each run",
    f"{MICROSOFT}.TransposeMatMul": "a varying operand is transposed into panels in each run",
}
"""
Reasons why operators may take more than 1.25 times as long as with onnxruntime; cases may have
their own.
"""


def reason(case: Case) -> str:
    return case.reason or REASONS.get(case.title, "")


def compiled() -> list[str]:
    """The operators that compile to C and may exist in onnxruntime, so not PopART's."""
    from popgraph.passes.onnx.operator_ways import rows

    titles = (row.title for row in rows() if row.way.is_compiled)
    return sorted({title for title in titles if not title.startswith("ai.graphcore.")})


def missing() -> list[str]:
    """The operators in `compiled()` without a case."""
    return sorted(set(compiled()) - {case.title for case in CASES} - ABSENT)
