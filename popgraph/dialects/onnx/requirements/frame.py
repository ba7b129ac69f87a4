"""How a rule about an operator reads a node: its attributes, the shapes and the known elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim, dims
from popgraph.dialects.program import BytesAttr
from popgraph.support.arrays import Array

Known: TypeAlias = Mapping[SSAValue, Array]
"""The elements of those values of which they are known."""

Shape: TypeAlias = tuple[Dim, ...]
Complaints: TypeAlias = Iterator[TypeConflict]

FLAGS = frozenset(
    [
        "align_corners",
        "allowzero",
        "antialias",
        "ceil_mode",
        "count_include_pad",
        "detect_negative",
        "detect_positive",
        "exclude_outside",
        "exclusive",
        "fmod",
        "input_forget",
        "interleaved",
        "inverse",
        "is_causal",
        "keepdims",
        "largest",
        "layout",
        "noop_with_empty_axes",
        "onesided",
        "periodic",
        "reverse",
        "saturate",
        "select_last_index",
        "sorted",
        "storage_order",
        "training_mode",
        "transA",
        "transB",
        "upper",
    ]
)
"""Attributes that are 0 or 1, whatever operator has them."""

_PADDING = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")
_REDUCTION = ("none", "mean", "sum")
_DEPTH = ("DCR", "CRD")
_SCATTERING = ("none", "add", "mul", "max", "min")
_DIRECTION = ("forward", "reverse", "bidirectional")
_TRANSFORM = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_KERNEL = ("LINEAR", "POLY", "RBF", "SIGMOID")
CHOICES: dict[tuple[str, str], Sequence[str]] = {
    ("CastMap", "cast_to"): ("TO_FLOAT", "TO_STRING", "TO_INT64"),
    ("CastMap", "map_form"): ("DENSE", "SPARSE"),
    ("LinearClassifier", "post_transform"): _TRANSFORM,
    ("LinearRegressor", "post_transform"): _TRANSFORM,
    ("Normalizer", "norm"): ("MAX", "L1", "L2"),
    ("SVMClassifier", "kernel_type"): _KERNEL,
    ("SVMClassifier", "post_transform"): _TRANSFORM,
    ("SVMRegressor", "kernel_type"): _KERNEL,
    ("SVMRegressor", "post_transform"): _TRANSFORM,
    ("TreeEnsembleClassifier", "post_transform"): _TRANSFORM,
    ("TreeEnsembleRegressor", "aggregate_function"): ("SUM", "AVERAGE", "MIN", "MAX"),
    ("TreeEnsembleRegressor", "post_transform"): _TRANSFORM,
    ("AveragePool", "auto_pad"): _PADDING,
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("Cast", "round_mode"): ("up", "down", "nearest"),
    ("CastLike", "round_mode"): ("up", "down", "nearest"),
    ("CausalConvWithState", "activation"): ("none", "silu", "swish"),
    ("Conv", "auto_pad"): _PADDING,
    ("ConvInteger", "auto_pad"): _PADDING,
    ("ConvTranspose", "auto_pad"): _PADDING,
    ("DepthToSpace", "mode"): _DEPTH,
    ("GRU", "direction"): (*_DIRECTION, "foward"),  # which is the default of version 1
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("ImageDecoder", "pixel_format"): ("RGB", "BGR", "Grayscale"),
    ("LSTM", "direction"): _DIRECTION,
    ("LinearAttention", "update_rule"): ("linear", "gated", "delta", "gated_delta"),
    ("LpPool", "auto_pad"): _PADDING,
    ("MaxPool", "auto_pad"): _PADDING,
    ("NegativeLogLikelihoodLoss", "reduction"): _REDUCTION,
    ("Momentum", "mode"): ("nesterov", "standard"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("QLinearConv", "auto_pad"): _PADDING,
    ("RNN", "direction"): _DIRECTION,
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
        "tf_crop_and_resize",
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): (
        "round_prefer_floor",
        "round_prefer_ceil",
        "floor",
        "ceil",
        "pytorch",  # PopART's: floor, of asymmetric coordinates
    ),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("ScatterElements", "reduction"): _SCATTERING,
    ("ScatterND", "reduction"): _SCATTERING,
    ("SoftmaxCrossEntropyLoss", "reduction"): _REDUCTION,
    ("SpaceToDepth", "mode"): _DEPTH,
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("Upsample", "mode"): ("nearest", "linear"),
}
"""Attributes that are one of a few words."""


class Seen:
    """A node as rules see it; of whatever is not known yet they say nothing."""

    def __init__(self, op: SchemaOp, known: Known) -> None:
        self.op = op
        self.known = known
        self.operands = op.input_values()

    def __len__(self) -> int:
        return len(self.operands)

    @property
    def version(self) -> int:
        return self.op.since_version

    def operand(self, index: int) -> SSAValue | None:
        return self.operands[index] if index < len(self.operands) else None

    def has(self, index: int) -> bool:
        return self.operand(index) is not None

    def shape(self, index: int) -> Shape | None:
        """The dimensions of an operand that is there and whose rank is known."""
        value = self.operand(index)
        return None if value is None else dims(value.type)

    def rank(self, index: int) -> int | None:
        shape = self.shape(index)
        return None if shape is None else len(shape)

    def array(self, index: int) -> Array | None:
        value = self.operand(index)
        return None if value is None else self.known.get(value)

    def numbers(self, index: int) -> list[int] | None:
        """The elements of an operand of whole numbers."""
        array = self.array(index)
        if array is None or array.dtype.kind not in "iu":
            return None
        return [int(number) for number in array.reshape(-1)]

    def integer(self, name: str, default: int = 0) -> int:
        held = self.op.properties.get(name, self.op.DEFAULTS.get(name))
        return held.value.data if isinstance(held, IntegerAttr) else default

    def real(self, name: str, default: float = 0.0) -> float:
        """A number that the node gives, whole or not."""
        held = self.op.properties.get(name, self.op.DEFAULTS.get(name))
        found = None if held is None else to_python(held)
        return float(found) if isinstance(found, int | float) else default

    def integers(self, name: str) -> list[int] | None:
        """A list of whole numbers that the node gives."""
        held = self.op.properties.get(name)
        found = None if held is None else to_python(held)
        return found if isinstance(found, list) else None

    def reals(self, name: str) -> list[float] | None:
        """A list of numbers that the node gives."""
        held = self.op.properties.get(name)
        found = None if held is None else to_python(held)
        return [float(one) for one in found] if isinstance(found, list) else None

    def text(self, name: str, default: str = "") -> str:
        held = self.op.properties.get(name, self.op.DEFAULTS.get(name))
        return held.data.decode(errors="replace") if isinstance(held, BytesAttr) else default

    def texts(self, name: str) -> list[str]:
        """A list of names that the node gives."""
        held = self.op.properties.get(name)
        found = [] if held is None else to_python(held)
        return [str(one) for one in found] if isinstance(found, list) else []

    def list_of(self, name: str, index: int) -> list[int] | None:
        """A list that is an attribute in old versions and an operand in new ones."""
        return self.integers(name) if name in self.op.KINDS else self.numbers(index)


Rule: TypeAlias = Callable[[Seen], Complaints]

RULES: dict[tuple[str, str], Rule] = {}
"""By domain ("" is the standard one) and operator; each rule takes every version."""


def asks(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Registers a rule for operators."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert (domain, name) not in RULES, f"{name} has two rules"
            RULES[domain, name] = rule
        return rule

    return register


def unmet(op: SchemaOp, known: Known) -> TypeConflict | None:
    """The first thing that a node's operator asks for and that is not so."""
    for complaint in _attributes(op):
        return complaint
    rule = RULES.get((op.domain, op.op_type))
    return None if rule is None else next(rule(Seen(op, known)), None)


def _attributes(op: SchemaOp) -> Complaints:
    """Of attributes whose values stand in a table."""
    for name, held in op.properties.items():
        if name in FLAGS and isinstance(held, IntegerAttr) and held.value.data not in (0, 1):
            yield TypeConflict(f"`{name}` is {held.value.data}", f"`{name}` is 0 or 1")
        if isinstance(held, BytesAttr) and op.op_type != "Constant":
            yield from _words(op, name, held.data)


def _words(op: SchemaOp, name: str, data: bytes) -> Complaints:
    try:
        word = data.decode()
    except UnicodeDecodeError:
        yield TypeConflict(f"`{name}` is not UTF-8", "the file is damaged: export the model again")
        return
    choices = CHOICES.get((op.op_type, name), (word,))
    if word not in choices:
        listed = ", ".join(filter(None, choices))
        yield TypeConflict(f"`{name}` is {word!r}", f"`{name}` is one of {listed}")


# What many rules ask


def differ(first: Dim, second: Dim) -> bool:
    """Whether two dimensions are certainly not the same."""
    return isinstance(first, int) and isinstance(second, int) and first != second


def shown(shape: Sequence[Dim]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def in_range(what: str, axes: Iterable[int], rank: int | None, *, end: bool = False) -> Complaints:
    """Every axis is one of a tensor of this rank; with `end`, the place behind all is one, too."""
    if rank is None:
        return
    for axis in axes:
        if not -rank <= axis < rank + end:
            last = rank - 1 + end
            yield TypeConflict(
                f"{what} {axis} is not among {rank} axes", f"it is {-rank} to {last}"
            )


def all_different(what: str, axes: Sequence[int], rank: int | None) -> Complaints:
    if rank and len({axis % rank for axis in axes}) < len(axes):
        yield TypeConflict(f"an axis stands twice in {what} {list(axes)}", "name every axis once")


def listed(node: Seen, *indices: int) -> Complaints:
    """Operands that are lists are vectors, or one number."""
    for index in indices:
        yield from of_rank(node, index, 0, 1)


def axes_of(node: Seen, name: str, index: int, rank: int | None) -> Complaints:
    """A list of axes, as an attribute or an operand."""
    yield from listed(node, index)
    axes = node.list_of(name, index)
    if axes is not None:
        yield from in_range("axis", axes, rank)
        yield from all_different(f"`{name}`", axes, rank)


def of_rank(node: Seen, index: int, *ranks: int) -> Complaints:
    """An operand has one of these ranks."""
    rank = node.rank(index)
    if rank is not None and rank not in ranks:
        wanted = " or ".join(map(str, ranks))
        yield TypeConflict(f"`{_name(node, index)}` has {rank} axes", f"it has {wanted}")


def at_least(node: Seen, index: int, least: int) -> Complaints:
    """An operand has so many axes or more."""
    rank = node.rank(index)
    if rank is not None and rank < least:
        yield TypeConflict(
            f"`{_name(node, index)}` has {rank} axes", f"it has {least} of them at least"
        )


def of_shape(node: Seen, index: int, *wanted: Dim) -> Complaints:
    """An operand has just this shape, where dimensions are known."""
    shape = node.shape(index)
    if shape is None:
        return
    if len(shape) != len(wanted) or any(map(differ, shape, wanted)):
        yield TypeConflict(
            f"`{_name(node, index)}` is {shown(shape)}, not {shown(wanted)}",
            "the other inputs and the attributes say its shape",
        )


def one_element(node: Seen, index: int) -> Complaints:
    """An operand is a scalar; a list of one number, as some exporters write it, is one as well."""
    shape = node.shape(index)
    if shape is not None and any(differ(dim, 1) for dim in shape):
        yield TypeConflict(f"`{_name(node, index)}` is {shown(shape)}", "it is a scalar")


def stretches(node: Seen, index: int, to: Shape | None) -> Complaints:
    """An operand broadcasts to a shape, and not the shape to the operand."""
    shape = node.shape(index)
    if shape is None or to is None:
        return
    pairs = zip(reversed(shape), reversed(to), strict=False)
    if len(shape) > len(to) or any(differ(a, b) and a != 1 for a, b in pairs):
        yield TypeConflict(
            f"`{_name(node, index)}` of shape {shown(shape)} does not stretch to {shown(to)}",
            "its sizes, counted from the last, are equal to those or 1",
        )


def positive(node: Seen, *names: str) -> Complaints:
    """Attributes of one number that must be 1 or more."""
    for name in names:
        if name in node.op.properties and node.integer(name) < 1:
            yield TypeConflict(f"`{name}` is {node.integer(name)}", f"`{name}` is 1 or more")


def _name(node: Seen, index: int) -> str:
    formals = node.op.SCHEMA.inputs
    return str(formals[min(index, len(formals) - 1)].name)
