"""The operators of onnxruntime that exporters and its optimizer write, each by ONNX's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

from onnx import FunctionProto, parser
from xdsl.dialects.builtin import Float16Type, Float64Type, TensorType
from xdsl.ir import Attribute

from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import DEFINITIONS
from popgraph.dialects.onnx.reader import read_function
from popgraph.dialects.onnx.types import Dim, describe, dims
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import TypeMismatchError, UnsupportedError

MICROSOFT = "com.microsoft"
OPSET = 23
"""Of ONNX, in which the definitions are written."""


class NotYet(Exception):
    """A definition depends on a type or an attribute that is not known yet."""


class Call:
    """A node as its definition sees it: which inputs there are, of what rank, and attributes."""

    def __init__(self, op: Custom, inputs: Sequence[str]) -> None:
        values = op.input_values()
        if len(values) > len(inputs):
            raise TypeMismatchError(
                f"{op.op_type} takes at most {len(inputs)} inputs, and gets {len(values)}",
                op.where(),
                "compare with the operator's definition in onnxruntime",
            )
        self.op = op
        self._values = dict(zip(inputs, values, strict=False))
        self._attributes = op.attribute_values()
        self.outputs = len(op.output_names)

    def has(self, name: str) -> bool:
        """Whether an input is there."""
        return self._values.get(name) is not None

    def type(self, name: str) -> TensorType[Attribute]:
        value = self._values.get(name)
        if value is None:
            raise TypeMismatchError(
                f"input {name!r} of {self.op.op_type} is missing", self.op.where()
            )
        if not isinstance(value.type, TensorType) or dims(value.type) is None:
            raise NotYet
        return value.type

    def shape(self, name: str) -> tuple[Dim, ...]:
        return dims(self.type(name)) or ()

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def size(self, name: str, axis: int) -> int:
        """A dimension that the definition depends on."""
        found = self.shape(name)[axis]
        if not isinstance(found, int):
            raise NotYet
        return found

    def integer(self, name: str, default: int = 0) -> int:
        return cast(int, self._attribute(name, default))

    def real(self, name: str, default: float = 0.0) -> float:
        return cast(float, self._attribute(name, default))

    def text(self, name: str) -> str:
        return cast(str, self._attribute(name, ""))

    def list(self, name: str) -> list[float]:
        return cast(list[float], self._attribute(name, []))

    def _attribute(self, name: str, default: object) -> object:
        found = self._attributes.get(name, default)
        if isinstance(found, RefAttr):
            raise NotYet
        return found

    def given(self, *names: str) -> str:
        """Those of these inputs that are there, as they follow others: `, B`, or nothing."""
        return "".join(f", {name}" for name in names if self.has(name))

    def needs(self, name: str) -> int:
        """An attribute without a default."""
        found = self.integer(name, 0)
        if found <= 0:
            raise TypeMismatchError(
                f"{self.op.op_type} needs the attribute {name!r}", self.op.where()
            )
        return found

    def refuse(self, what: str, hint: str = "") -> UnsupportedError:
        return UnsupportedError(
            f"{what} of {self.op.op_type} is not supported", self.op.where(), hint
        )

    def refuse_inputs(self, *names: str) -> None:
        for name in names:
            if self.has(name):
                raise self.refuse(f"the input {name!r} ({describe(self._values[name].type)})")  # type: ignore[union-attr]


Written: TypeAlias = Callable[[Call], str]
"""What a node stands for, in ONNX's own text."""


def _defines(
    name: str, inputs: str, outputs: str, domain: str = MICROSOFT
) -> Callable[[Written], Written]:
    """Registers the definition of an operator, with the names of its inputs and outputs."""
    formal, made = inputs.split(), outputs.split()

    def register(written: Written) -> Written:
        def define(op: Custom) -> Function | None:
            try:
                call = Call(op, formal)
                body = written(call)
            except NotYet:
                return None
            listed = f"({', '.join(formal)}) => ({', '.join(made[: call.outputs])})"
            return _function(name, f"{listed} {{\n{body}\n}}")

        DEFINITIONS[domain, name] = define
        return written

    return register


@lru_cache(maxsize=256)
def _function(name: str, text: str) -> Function:
    head = f'<domain: "{MICROSOFT}", opset_import: ["": {OPSET}]>'
    proto: FunctionProto = parser.parse_function(f"{head} {name} {text}")
    return read_function(proto, WeightStore())


# What many definitions are made of


def _ints(name: str, values: Sequence[int]) -> str:
    return f"{name} = Constant <value_ints = [{', '.join(map(str, values))}]> ()\n"


def _number(name: str, value: float, like: str) -> str:
    """A scalar of the element type that another value has."""
    return (
        f"{name}_number = Constant <value_float = {float(value)!r}> ()\n"
        f"{name} = CastLike ({name}_number, {like})\n"
    )


def _scaled(name: str, value: str, factor: float) -> str:
    if factor == 1:
        return f"{name} = Identity ({value})\n"
    return _number(f"{name}_factor", factor, value) + f"{name} = Mul ({value}, {name}_factor)\n"


def _permuted(name: str, value: str, order: Sequence[int]) -> str:
    return f"{name} = Transpose <perm = [{', '.join(map(str, order))}]> ({value})\n"


def _reshaped(name: str, value: str, shape: Sequence[int]) -> str:
    return _ints(f"{name}_shape", shape) + f"{name} = Reshape ({value}, {name}_shape)\n"


def _sliced(name: str, value: str, start: int, end: int, axis: int) -> str:
    return (
        _ints(f"{name}_start", [start])
        + _ints(f"{name}_end", [end])
        + _ints(f"{name}_axis", [axis])
        + f"{name} = Slice ({value}, {name}_start, {name}_end, {name}_axis)\n"
    )


def _length(name: str, value: str, axis: int) -> str:
    """The size of an axis, a scalar."""
    return (
        f"{name}_list = Shape <start = {axis}, end = {axis + 1}> ({value})\n"
        f"{name} = Squeeze ({name}_list)\n"
    )


def _counted(name: str, limit: str) -> str:
    """0, 1, ... below a scalar."""
    return (
        f"{name}_zero = Constant <value_int = 0> ()\n{name}_one = Constant <value_int = 1> ()\n"
        f"{name} = Range ({name}_zero, {limit}, {name}_one)\n"
    )


def _sum(name: str, values: Sequence[str]) -> str:
    return f"{name} = {'Sum' if len(values) > 1 else 'Identity'} ({', '.join(values)})\n"


LAST = 2**63 - 1

# Activations


@_defines("Gelu", "X", "Y")
def gelu(call: Call) -> str:
    return "Y = Gelu (X)"


@_defines("BiasGelu", "A B", "C")
def bias_gelu(call: Call) -> str:
    return "S = Add (A, B)\n C = Gelu (S)"


@_defines("FastGelu", "X bias", "Y")
def fast_gelu(call: Call) -> str:
    return _sum("S", ["X", "bias"][: 1 + call.has("bias")]) + 'Y = Gelu <approximate = "tanh"> (S)'


@_defines("QuickGelu", "X", "Y")
def quick_gelu(call: Call) -> str:
    return _scaled("S", "X", call.real("alpha", 1.702)) + "G = Sigmoid (S)\n Y = Mul (X, G)"


@_defines("BiasSoftmax", "data bias", "output")
def bias_softmax(call: Call) -> str:
    rank, axis = call.rank("data"), call.integer("axis", 1)
    axis %= rank
    return (
        "scores = Add (data, bias)\n"
        + _reshaped("rows", "scores", [0] * axis + [-1])
        + "found = Softmax <axis = -1> (rows)\n"
        + "like = Shape (scores)\n output = Reshape (found, like)"
    )


@_defines("BiasDropout", "data bias residual ratio training_mode", "output mask")
def bias_dropout(call: Call) -> str:
    given = ["ratio" if call.has("ratio") else "", "training_mode"]
    inputs = ", ".join(["sum", *given[: 1 + call.has("training_mode")]]).removesuffix(", ")
    seed = f"<seed = {call.integer('seed')}> " if call.integer("seed") else ""
    return f"sum = Add (data, bias)\nkept, mask = Dropout {seed}({inputs})\n" + _sum(
        "output", ["kept", "residual"][: 1 + call.has("residual")]
    )


def _activated(call: Call, value: str, name: str, result: str, given: Sequence[float]) -> str:
    """An activation that is told by its name, with its numbers."""
    alpha, beta = (*given, 0.0, 0.0)[:2]
    match name:
        case "":
            return f"{result} = Identity ({value})\n"
        case "Relu" | "Sigmoid" | "Tanh" | "Softplus" | "Softsign":
            return f"{result} = {name} ({value})\n"
        case "LeakyRelu" | "Elu" | "ThresholdedRelu":
            return f"{result} = {name} <alpha = {float(alpha)!r}> ({value})\n"
        case "HardSigmoid":
            return (
                f"{result} = {name} <alpha = {float(alpha)!r}, beta = {float(beta)!r}> ({value})\n"
            )
        case "Clip":
            return (
                _number("low", alpha, value)
                + _number("high", beta, value)
                + f"{result} = Clip ({value}, low, high)\n"
            )
        case _:
            raise call.refuse(f"the activation {name!r}", "use an activation of its own node")


# Products


def _turned(call: Call, name: str, by_rows: bool, by_batch: bool) -> str:
    """An operand of a product, with its last axes and its first ones changed."""
    if not (by_rows or by_batch):
        return f"{name}_turned = Identity ({name})\n"
    rank = call.rank(name)
    order = list(range(rank))
    if rank < 2:
        return f"{name}_turned = Identity ({name})\n"
    if by_batch:
        order = [*order[1:-1], 0, order[-1]]
    if by_rows:
        order[-2:] = order[:-3:-1]
    return _permuted(f"{name}_turned", name, order)


@_defines("FusedMatMul", "A B", "Y")
def fused_matmul(call: Call) -> str:
    return (
        _turned(call, "A", bool(call.integer("transA")), bool(call.integer("transBatchA")))
        + _turned(call, "B", bool(call.integer("transB")), bool(call.integer("transBatchB")))
        + "P = MatMul (A_turned, B_turned)\n"
        + _scaled("Y", "P", call.real("alpha", 1.0))
    )


@_defines("FusedGemm", "A B C", "Y")
def fused_gemm(call: Call) -> str:
    numbers = ", ".join(
        [
            f"alpha = {float(call.real('alpha', 1.0))!r}",
            f"beta = {float(call.real('beta', 1.0))!r}",
            f"transA = {call.integer('transA')}",
            f"transB = {call.integer('transB')}",
        ]
    )
    given = [call.real("activation_alpha"), call.real("activation_beta")]
    return f"S = Gemm <{numbers}> (A, B{call.given('C')})\n" + _activated(
        call, "S", call.text("activation"), "Y", given
    )


@_defines("FusedConv", "X W B Z", "Y")
def fused_conv(call: Call) -> str:
    head = f"P = Conv <{_conv_attributes(call)}> (X, W{call.given('B')})\n"
    head += _sum("S", ["P", "Z"][: 1 + call.has("Z")])
    return head + _activated(
        call, "S", call.text("activation"), "Y", call.list("activation_params")
    )


@_defines("NhwcFusedConv", "X W B Z", "Y")
def nhwc_fused_conv(call: Call) -> str:
    return _nhwc_conv(call, call.text("activation"))


@_defines("NhwcConv", "X W B", "Y")
def nhwc_conv(call: Call) -> str:
    return _nhwc_conv(call, "")


def _nhwc_conv(call: Call, activation: str) -> str:
    """Channels are the last axis of images and results; filters are as those of Conv."""
    rank = call.rank("X")
    back = [0, *range(2, rank), 1]
    head = _permuted("planes", "X", [0, rank - 1, *range(1, rank - 1)])
    head += f"found = Conv <{_conv_attributes(call)}> (planes, W{call.given('B')})\n"
    head += _permuted("P", "found", back) + _sum("S", ["P", "Z"][: 1 + call.has("Z")])
    return head + _activated(call, "S", activation, "Y", call.list("activation_params"))


def _conv_attributes(call: Call) -> str:
    held = []
    for name in ("dilations", "kernel_shape", "pads", "strides"):
        if call.list(name):
            held.append(f"{name} = [{', '.join(map(str, call.list(name)))}]")
    if call.text("auto_pad"):
        held.append(f'auto_pad = "{call.text("auto_pad")}"')
    return ", ".join([*held, f"group = {call.integer('group', 1)}"])


@_defines("MatMulNBits", "A B scales zero_points g_idx bias", "Y")
def matmul_nbits(call: Call) -> str:
    """
    The weights B are integers of few bits, the lowest first in each byte, in rows of blocks.

    Each block of a row has a scale, and a zero point: packed as the weights are, or as a number.
    """
    rows, columns, block = call.needs("N"), call.needs("K"), call.needs("block_size")
    bits = call.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise call.refuse(f"bits = {bits}", "2, 4 and 8 are")
    call.refuse_inputs("g_idx")
    blocks = -(-columns // block)
    text = _unpacked("weights", "B", bits) + _reshaped("codes", "weights", [rows, blocks, -1])
    text += "numbers = CastLike (codes, A)\n" + _reshaped("steps", "scales", [rows, blocks, 1])
    if not call.has("zero_points"):
        text += _number("zeros", 2 ** (bits - 1), "A")
    elif call.type("zero_points").element_type == call.type("A").element_type:
        text += _reshaped("zeros", "zero_points", [rows, blocks, 1])
    else:
        text += _unpacked("points", "zero_points", bits)
        text += _reshaped("row_points", "points", [rows, -1])
        text += _sliced("own_points", "row_points", 0, blocks, 1)
        text += "typed_points = CastLike (own_points, A)\n"
        text += _reshaped("zeros", "typed_points", [rows, blocks, 1])
    text += "centred = Sub (numbers, zeros)\n real = Mul (centred, steps)\n"
    text += _reshaped("padded", "real", [rows, -1]) + _sliced("table", "padded", 0, columns, 1)
    text += _permuted("turned", "table", [1, 0]) + "product = MatMul (A, turned)\n"
    return text + _sum("Y", ["product", "bias"][: 1 + call.has("bias")])


def _unpacked(name: str, value: str, bits: int) -> str:
    """The numbers in bytes, along a new last axis."""
    text = f"{name}_bytes = Cast <to = 6> ({value})\n"
    parts = []
    for place in range(8 // bits):
        part = f"{name}_{place}"
        text += f"{part}_unit = Constant <value = int32 {{{2 ** (place * bits)}}}> ()\n"
        text += f"{part}_base = Constant <value = int32 {{{2**bits}}}> ()\n"
        text += f"{part}_shifted = Div ({name}_bytes, {part}_unit)\n"
        text += f"{part}_flat = Mod ({part}_shifted, {part}_base)\n"
        text += _ints(f"{part}_axes", [-1]) + f"{part} = Unsqueeze ({part}_flat, {part}_axes)\n"
        parts.append(part)
    return text + f"{name} = Concat <axis = -1> ({', '.join(parts)})\n"


# Normalization


def _normalized(call: Call, epsilon: float) -> str:
    """`output`, `mean` and `inv_std_var` of `total`."""
    return (
        f"output, mean, inv_std_var = LayerNormalization <axis = -1, epsilon = {epsilon!r}> "
        f"(total, gamma{call.given('beta')})\n"
    )


def _simplified(call: Call, value: str, result: str, given: tuple[str, str], epsilon: float) -> str:
    """By the root of the mean square; of halves, in single precision, as onnxruntime does it."""
    first, scale = given
    double = call.type(first).element_type == Float64Type()
    return (
        f"wide = Cast <to = {11 if double else 1}> ({value})\nsquares = Mul (wide, wide)\n"
        + _ints("axes", [-1])
        + "moment = ReduceMean (squares, axes)\n"
        + _number("epsilon", epsilon, "wide")
        + "enough = Add (moment, epsilon)\ndeviation = Sqrt (enough)\n"
        "inv_std_var = Reciprocal (deviation)\nunit = Mul (wide, inv_std_var)\n"
        f"typed = CastLike (unit, {value})\n{result} = Mul (typed, {scale})\n"
    )


def _skipped(call: Call) -> str:
    """The sum of all that is normalized; absent outputs must be some value, too."""
    parts = ["input", "skip", *(["bias"] if call.has("bias") else [])]
    return _sum("total", parts) + "input_skip_bias_sum = Identity (total)\n"


@_defines("SkipLayerNormalization", "input skip gamma beta bias",
          "output mean inv_std_var input_skip_bias_sum")  # fmt: skip
def skip_layer_normalization(call: Call) -> str:
    return _skipped(call) + _normalized(call, call.real("epsilon", 1e-12))


@_defines("SkipSimplifiedLayerNormalization", "input skip gamma bias",
          "output mean inv_std_var input_skip_bias_sum")  # fmt: skip
def skip_simplified_layer_normalization(call: Call) -> str:
    text = _skipped(call)
    text += _simplified(call, "total", "output", ("input", "gamma"), call.real("epsilon", 1e-12))
    return text + "mean = ReduceMean (wide, axes)\n"


@_defines("SimplifiedLayerNormalization", "X scale", "Y inv_std_var", "")
def simplified_layer_normalization(call: Call) -> str:
    axis = call.integer("axis", -1)
    if axis != -1 and axis != call.rank("X") - 1:
        raise call.refuse(f"axis = {axis}", "the last axis is")
    return _simplified(call, "X", "Y", ("X", "scale"), call.real("epsilon", 1e-5))


@_defines("EmbedLayerNormalization",
          "input_ids segment_ids words positions segments gamma beta mask position_ids",
          "output mask_index embedding_sum")  # fmt: skip
def embed_layer_normalization(call: Call) -> str:
    text = "word = Gather (words, input_ids)\n" + _length("length", "input_ids", 1)
    if call.has("position_ids"):
        text += "place = Gather (positions, position_ids)\n"
    else:
        text += _counted("order", "length") + "place = Gather (positions, order)\n"
    parts = ["word", "place"]
    if call.has("segment_ids") and call.has("segments"):
        text += "segment = Gather (segments, segment_ids)\n"
        parts.append("segment")
    text += _sum("total", parts) + "embedding_sum = Identity (total)\n"
    text += _normalized(call, call.real("epsilon", 1e-12))
    counted = "mask" if call.has("mask") else "nothing"
    text += "nothing = Sub (input_ids, input_ids)\n"
    return text + (
        f"mask_axes = Constant <value_ints = [1]> ()\nnarrow = Cast <to = 6> ({counted})\n"
        "valid = Constant <value = int32 {1}> ()\nis_valid = Equal (narrow, valid)\n"
        "ones = Cast <to = 6> (is_valid)\n"
        "mask_index = ReduceSum <keepdims = 0> (ones, mask_axes)\n"
    )


# Attention


def _heads(name: str, value: str, heads: int) -> str:
    """[batch, length, heads * size]  ->  [batch, heads, length, size]"""
    return _reshaped(f"{name}_split", value, [0, 0, heads, -1]) + _permuted(
        name, f"{name}_split", [0, 2, 1, 3]
    )


def _biased(name: str, value: str, start: int, size: int) -> str:
    """A part of `bias` added to a value."""
    part = _sliced(f"{name}_bias", "bias", start, start + size, 0)
    return part + f"{name} = Add ({value}, {name}_bias)\n"


def _scale(call: Call, queries: str = "queries", scores: str = "scores") -> str:
    """`scores` of queries and keys."""
    given = call.real("scale", 0.0)
    text = "turned = Transpose <perm = [0, 1, 3, 2]> (keys)\n"
    text += f"products = MatMul ({queries}, turned)\n"
    if given:
        return text + _scaled(scores, "products", given)
    return text + (
        "width_list = Shape <start = 3, end = 4> (queries)\n"
        "width = CastLike (width_list, products)\n"
        f"root = Sqrt (width)\n {scores} = Div (products, root)\n"
    )


def _places() -> str:
    """The numbers of the keys in a row, those of the queries, behind the past, in a column."""
    return (
        _length("all_keys", "keys", 2)
        + _length("all_queries", "queries", 2)
        + _counted("key_places", "all_keys")
        + _counted("own_places", "all_queries")
        + "before = Sub (all_keys, all_queries)\n places_row = Add (own_places, before)\n"
        + _ints("as_column", [1])
        + "query_places = Unsqueeze (places_row, as_column)\n"
    )


def _where(name: str, seen: str, hidden: float) -> str:
    """What is added to scores: nothing where a pair is `seen`."""
    return (
        f"{name}_nothing = Constant <value_float = 0.0> ()\n"
        f"{name}_hidden = Constant <value_float = {hidden!r}> ()\n"
        f"{name}_single = Where ({seen}, {name}_nothing, {name}_hidden)\n"
        f"{name} = CastLike ({name}_single, scores)\n"
    )


def _causal(call: Call, like: str, window: int = -1) -> str:
    """
    `causal` hides what comes behind a query, as far as its element type can.

    With a window, it also hides keys that are so many places or more before the query.
    """
    half = call.type(like).element_type == Float16Type()
    hidden = -65504.0 if half else -3.4028234663852886e38
    if window <= 0:
        seen = "near = LessOrEqual (key_places, query_places)\n"
    else:
        seen = (
            f"window = Constant <value_int = {window}> ()\n"
            "earlier = LessOrEqual (key_places, query_places)\n"
            "distant = Sub (query_places, window)\nrecent = Greater (key_places, distant)\n"
            "near = And (earlier, recent)\n"
        )
    return seen + _where("causal", "near", hidden)


def _padding(call: Call, name: str, batched: str) -> str:
    """`padding` hides keys: from a length on, outside of a range, or where a mask has zeros."""
    rank = call.rank(name)
    if rank > 3:
        raise call.refuse(
            f"a mask of {rank} dimensions", "one of up to three is, or attention_bias"
        )
    if rank == 1:
        seen = _within(call, name, batched)
    else:
        seen = f"seen_numbers = Cast <to = 9> ({name})\n" + _ints("mask_axes", [1, 2][: 4 - rank])
        seen += "seen = Unsqueeze (seen_numbers, mask_axes)\n"
    return seen + _where("padding", "seen", call.real("mask_filter_value", -10000.0))


def _within(call: Call, name: str, batched: str) -> str:
    """The keys before an end, of each entry of the batch; starts may follow all the ends."""
    entries, given = call.size(batched, 0), call.size(name, 0)
    if given not in (entries, 2 * entries):
        raise call.refuse(f"a mask of {given} numbers for {entries} entries")
    text = f"wide = Cast <to = 7> ({name})\n" + _sliced("ends", "wide", 0, entries, 0)
    text += _reshaped("end", "ends", [-1, 1, 1, 1]) + "ahead = Less (key_places, end)\n"
    if given == entries:
        return text + "seen = Identity (ahead)\n"
    text += _sliced("starts", "wide", entries, LAST, 0) + _reshaped(
        "first", "starts", [-1, 1, 1, 1]
    )
    return text + "behind = GreaterOrEqual (key_places, first)\nseen = And (ahead, behind)\n"


def _attended(masks: Sequence[str], sink: str = "") -> str:
    """`output` of `scores`, `values` and what is added to the scores; `sink` takes its part."""
    text = _sum("masked", ["scores", *masks])
    if sink:
        text += (
            f"wider = Concat <axis = -1> (masked, {sink})\nshares = Softmax <axis = -1> (wider)\n"
        )
        text += _sliced("weights_of", "shares", 0, -1, 3)
    else:
        text += "weights_of = Softmax <axis = -1> (masked)\n"
    text += "found = MatMul (weights_of, values)\n"
    text += _permuted("rows", "found", [0, 2, 1, 3])
    return text + _reshaped("output", "rows", [0, 0, -1])


@_defines("Attention",
          "input weights bias mask_index past attention_bias past_sequence_length",
          "output present")  # fmt: skip
def attention(call: Call) -> str:
    call.refuse_inputs("past_sequence_length")
    if call.integer("do_rotary") or call.integer("past_present_share_buffer"):
        raise call.refuse("do_rotary or past_present_share_buffer", "use RotaryEmbedding")
    heads, sizes = call.needs("num_heads"), [int(one) for one in call.list("qkv_hidden_sizes")]
    sizes = sizes or [call.size("weights", 1) // 3] * 3
    text = "mixed = MatMul (input, weights)\n"
    text += _sum("all", ["mixed", "bias"][: 1 + call.has("bias")])
    text += _ints("sizes", sizes) + "q, k, v = Split <axis = 2> (all, sizes)\n"
    text += _heads("queries", "q", heads) + _heads("k4", "k", heads) + _heads("v4", "v", heads)
    if call.has("past"):
        for at, name in enumerate("kv"):
            text += _sliced(f"past_{name}", "past", at, at + 1, 0) + _ints(f"at_{name}", [0])
            text += f"old_{name} = Squeeze (past_{name}, at_{name})\n"
    text += _with_past(call.has("past"), "old_k", "old_v")
    if call.outputs > 1:
        text += _ints("stacked", [0])
        text += "key_part = Unsqueeze (keys, stacked)\nvalue_part = Unsqueeze (values, stacked)\n"
        text += "present = Concat <axis = 0> (key_part, value_part)\n"
    return text + _scale(call) + _places() + _masked(call, "mask_index", "input")


def _with_past(is_there: bool, keys: str, values: str) -> str:
    """All keys and values: those of before and the new ones, `k4` and `v4`."""
    if not is_there:
        return "keys = Identity (k4)\nvalues = Identity (v4)\n"
    return f"keys = Concat <axis = 2> ({keys}, k4)\nvalues = Concat <axis = 2> ({values}, v4)\n"


def _masked(call: Call, mask: str, batched: str) -> str:
    """Attention under whatever hides something."""
    text, masks = "", []
    if call.integer("unidirectional"):
        text, masks = _causal(call, batched), ["causal"]
    if call.has(mask):
        text, masks = text + _padding(call, mask, batched), [*masks, "padding"]
    if call.has("attention_bias"):
        masks = [*masks, "attention_bias"]
    return text + _attended(masks)


@_defines("MultiHeadAttention",
          "query key value bias key_padding_mask attention_bias past_key past_value "
          "past_sequence_length cache_indirection",
          "output present_key present_value")  # fmt: skip
def multi_head_attention(call: Call) -> str:
    """Queries, keys and values, apart or together, or keys that have been split into heads."""
    call.refuse_inputs("past_sequence_length", "cache_indirection")
    heads = call.needs("num_heads")
    text = _packed(call, heads)
    text += _with_past(call.has("past_key"), "past_key", "past_value")
    text += "present_key = Identity (keys)\npresent_value = Identity (values)\n"
    return text + _scale(call) + _places() + _masked(call, "key_padding_mask", "query")


def _packed(call: Call, heads: int) -> str:
    """`queries`, `k4` and `v4`, with their biases, by heads."""
    if call.rank("query") == 5:
        width = call.size("query", 2) * call.size("query", 4)
        text = _unpacked_heads("q", "query", 0) + _unpacked_heads("k", "query", 1)
        text += _unpacked_heads("v", "query", 2)
    elif call.rank("key") == 5:
        width = call.size("query", 2)
        text = "q_rows = Identity (query)\n" + _unpacked_heads("k", "key", 0)
        text += _unpacked_heads("v", "key", 1)
    elif call.rank("key") == 4:
        text, width = "q_rows = Identity (query)\n", call.size("query", 2)
        text += _biased("q_all", "q_rows", 0, width) if call.has("bias") else ""
        text += _heads("queries", "q_all" if call.has("bias") else "q_rows", heads)
        return text + "k4 = Identity (key)\nv4 = Identity (value)\n"
    else:
        width = call.size("query", 2)
        text = "".join(
            f"{name[0]}_rows = Identity ({name})\n" for name in ("query", "key", "value")
        )
    starts = {"q": 0, "k": width, "v": 2 * width}
    for name, made in (("q", "queries"), ("k", "k4"), ("v", "v4")):
        if call.has("bias"):
            end = LAST if name == "v" else starts[name] + width
            text += _biased(f"{name}_all", f"{name}_rows", starts[name], end - starts[name])
        text += _heads(made, f"{name}_all" if call.has("bias") else f"{name}_rows", heads)
    return text


def _unpacked_heads(name: str, value: str, at: int) -> str:
    """[batch, length, heads, 3, size]  ->  [batch, length, heads * size], one of the three."""
    return _sliced(f"{name}_part", value, at, at + 1, 3) + _reshaped(
        f"{name}_rows", f"{name}_part", [0, 0, -1]
    )


@_defines("RotaryEmbedding", "input position_ids cos_cache sin_cache", "output")
def rotary_embedding(call: Call) -> str:
    if call.real("scale", 1.0) != 1 or call.integer("is_packed_batching"):
        raise call.refuse("a scale or is_packed_batching")
    half, rank = call.size("cos_cache", 1), call.rank("input")
    heads, partial = call.integer("num_heads"), call.integer("rotary_embedding_dim")
    if rank == 3 and not heads:
        heads = call.size("input", 2) // (2 * half)
    given = f"interleaved = {call.integer('interleaved')}, rotary_embedding_dim = {partial}"
    given += f", num_heads = {heads}" if rank == 3 else ""
    text = _length("length", "input", rank - 2)
    if call.rank("position_ids") == 2:
        text += "places = Identity (position_ids)\n"
    else:
        text += _counted("order", "length") + "shifted = Add (order, position_ids)\n"
        text += "entries = Shape <start = 0, end = 1> (input)\n"
        text += "grid = Concat <axis = 0> (entries, length_list)\n"
        text += "places = Expand (shifted, grid)\n"
    rotated = f"RotaryEmbedding <{given}> (input, cos_cache, sin_cache, places)"
    return text + f"output = {rotated}\n"


@_defines("GroupQueryAttention",
          "query key value past_key past_value seqlens_k total_sequence_length "
          "cos_cache sin_cache position_ids attention_bias head_sink k_scale v_scale",
          "output present_key present_value")  # fmt: skip
def group_query_attention(call: Call) -> str:
    """
    A head of keys and values serves several heads of queries.

    Entry b of the batch has `seqlens_k[b] + 1` keys; the new ones are the last of these. The
    state is as long as before, or as `total_sequence_length` says.
    """
    call.refuse_inputs("k_scale", "v_scale")
    heads, kept = call.needs("num_heads"), call.needs("kv_num_heads")
    text = _grouped(call, heads, kept)
    text += _length("length", "queries", 2) + _counted("own", "length")
    text += "wide = Cast <to = 7> (seqlens_k)\nlast = Sub (wide, length)\n"
    text += "one = Constant <value_int = 1> ()\nzero = Constant <value_int = 0> ()\n"
    text += "shifted = Add (last, one)\nbegin = Max (shifted, zero)\n"
    text += _reshaped("begins", "begin", [-1, 1]) + "places = Add (begins, own)\n"
    if call.integer("do_rotary"):
        text += _turned_heads(call)
    text += _kept_state(call)
    text += "present_key = Identity (all_k)\npresent_value = Identity (all_v)\n"
    text += _ints("groups", [place * kept // heads for place in range(heads)])
    text += "keys = Gather <axis = 1> (all_k, groups)\nvalues = Gather <axis = 1> (all_v, groups)\n"
    text += _scale(call, "new_q", "raw_scores") + _capped(call)
    text += _length("all_keys", "keys", 2) + _counted("key_places", "all_keys")
    text += _reshaped("query_places", "places", [0, 1, -1, 1])
    text += _causal(call, "query", call.integer("local_window_size", -1))
    masks = ["causal"]
    if call.has("attention_bias"):
        masks.append("attention_bias")
    sink = ""
    if call.has("head_sink") or call.integer("smooth_softmax"):
        text, sink = text + _sink(call), "sink"
    return text + _attended(masks, sink)


def _grouped(call: Call, heads: int, kept: int) -> str:
    """`queries`, `k4` and `v4` by heads; without keys, the queries hold all three."""
    if call.has("key"):
        return (
            _heads("queries", "query", heads)
            + _heads("k4", "key", kept)
            + _heads("v4", "value", kept)
        )
    every = heads + 2 * kept
    return (
        _heads("all", "query", every)
        + _sliced("queries", "all", 0, heads, 1)
        + _sliced("k4", "all", heads, heads + kept, 1)
        + _sliced("v4", "all", heads + kept, every, 1)
    )


def _turned_heads(call: Call) -> str:
    """Queries and keys, turned by their places."""
    given = f"interleaved = {call.integer('rotary_interleaved')}"
    given += f", rotary_embedding_dim = {2 * call.size('cos_cache', 1)}"
    places = "position_ids" if call.has("position_ids") else "places"
    return "".join(
        f"{name}_turned = RotaryEmbedding <{given}> ({name}, cos_cache, sin_cache, {places})\n"
        for name in ("queries", "k4")
    )


def _kept_state(call: Call) -> str:
    """`all_k` and `all_v`: the state, with the new keys and values where they belong."""
    turned = "_turned" if call.integer("do_rotary") else ""
    text = f"new_q = Identity (queries{turned})\nnew_k = Identity (k4{turned})\n"
    if not call.has("past_key"):
        return text + "all_k = Identity (new_k)\nall_v = Identity (v4)\n"
    text += _length("before", "past_key", 2) + "total = Cast <to = 7> (total_sequence_length)\n"
    text += "total_number = Squeeze (total)\nfull = Max (before, total_number)\n"
    text += _counted("slots", "full")
    text += "ahead = Sub (slots, begins)\nold = Less (ahead, zero)\n"
    text += "unused = GreaterOrEqual (ahead, length)\nuntouched = Or (old, unused)\n"
    text += "there = Add (before, length)\nfinal = Sub (there, one)\n"
    text += "as_it_was = Min (slots, final)\nbrought = Add (ahead, before)\n"
    text += "sources = Where (untouched, as_it_was, brought)\n"
    text += _ints("pointed", [-1]) + "pointers = Unsqueeze (sources, pointed)\n"
    for name, past, new in (("k", "past_key", "new_k"), ("v", "past_value", "v4")):
        text += f"{name}_both = Concat <axis = 2> ({past}, {new})\n"
        text += _permuted(f"{name}_rows", f"{name}_both", [0, 2, 1, 3])
        text += f"{name}_taken = GatherND <batch_dims = 1> ({name}_rows, pointers)\n"
        text += _permuted(f"all_{name}", f"{name}_taken", [0, 2, 1, 3])
    return text


def _capped(call: Call) -> str:
    cap = call.real("softcap")
    if cap <= 0:
        return "scores = Identity (raw_scores)\n"
    return (
        _number("cap", cap, "raw_scores")
        + "part = Div (raw_scores, cap)\nbent = Tanh (part)\nscores = Mul (bent, cap)\n"
    )


def _sink(call: Call) -> str:
    """`sink`: a score for each row, of a key without a value."""
    text = "row_axes = Constant <value_ints = [3]> ()\n"
    text += "highest = ReduceMax (scores, row_axes)\nnone = Sub (highest, highest)\n"
    if not call.has("head_sink"):
        return text + "sink = Identity (none)\n"
    return text + _reshaped("sinks", "head_sink", [1, -1, 1, 1]) + "sink = Add (none, sinks)\n"
