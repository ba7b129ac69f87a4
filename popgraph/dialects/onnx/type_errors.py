"""Type errors of nodes: the operands that do not fit, and the usual cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.typeproto import from_text
from popgraph.dialects.onnx.types import Dim, UnknownType, describe, dims, erased, static_shape
from popgraph.support.errors import TypeMismatchError


@dataclass(frozen=True)
class TypeConflict:
    """The error of a node, and the way to correct it."""

    what: str
    hint: str


Shape = Sequence[Dim]
Operands = Sequence[SSAValue | None]
Rule = Callable[[SchemaOp, Operands], TypeConflict | None]


def type_conflict(op: SchemaOp, elements: bool = True) -> TypeConflict | None:
    """The error of a node's operands (and their `elements`), if a rule finds it."""
    operands = op.input_values()
    rules: list[Rule] = [_element_types] if elements else []
    for rule in [*rules, _RULES.get(op.op_type, _broadcast)]:
        if found := rule(op, operands):
            return found
    return None


def mismatch(op: SchemaOp, message: str, elements: bool = True) -> TypeMismatchError:
    """
    The error for a node that its schema refuses with this message.

    Without `elements`, element types are excluded as causes.
    """
    message = message.removeprefix("[ShapeInferenceError] ").removeprefix("[TypeInferenceError] ")
    known = type_conflict(op, elements) or TypeConflict(
        message.strip(), "compare with the operator's definition in ONNX"
    )
    return refusal(op, known)


def refusal(op: SchemaOp, known: TypeConflict) -> TypeMismatchError:
    """The error for a node whose conflict is known."""
    inputs = ", ".join(
        "-" if value is None else describe(value.type) for value in op.input_values()
    )
    return TypeMismatchError(
        f"{op.op_type}-{op.since_version} does not take inputs ({inputs}): {known.what}",
        op.where(),
        known.hint,
    )


def undetected_conflict(op: SchemaOp) -> TypeConflict | None:
    """The error of a node that ONNX's own inference accepts."""
    rule = _UNDETECTED.get(op.op_type)
    return rule(op, op.input_values()) if rule else None


def _element_types(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    formals = op.SCHEMA.inputs
    seen: dict[str, Attribute] = {}
    for place, value in enumerate(operands):
        if value is None or not formals or isinstance(value.type, UnknownType):
            continue
        formal = formals[min(place, len(formals) - 1)]
        allowed = {from_text(one) for one in formal.types}
        mine = erased(value.type)
        if mine not in allowed:
            shown = sorted({_dtype(one) for one in allowed})
            return TypeConflict(
                f"its input `{formal.name}` is not {_dtype(mine)}",
                f"it may be {', '.join(shown)}; `Cast(..., to=...)` converts",
            )
        if not formal.is_homogeneous:
            continue
        other = seen.setdefault(formal.type_str, mine)
        if other != mine:
            return TypeConflict(
                f"{_dtype(other)} and {_dtype(mine)} do not mix",
                f"`Cast(..., to={_dtype(other)})` converts",
            )
    return None


def _dtype(type_: Attribute) -> str:
    """The element type of a tensor; the full type of anything else."""
    return describe(type_).removesuffix("[...]")


def _shapes(operands: Operands) -> list[Shape | None]:
    return [None if value is None else dims(value.type) for value in operands]


def _differ(first: Dim, second: Dim) -> bool:
    return isinstance(first, int) and isinstance(second, int) and first != second


def _broadcast(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    """Conflicts of broadcast shapes, for elementwise operators only."""
    if op.op_type == "Expand":  # its second operand is a shape
        return None
    known = [shape for shape in _shapes(operands) if shape is not None]
    for index, first in enumerate(known):
        for second in known[index + 1 :]:
            pairs = zip_longest(reversed(first), reversed(second), fillvalue=1)
            for axis, (a, b) in enumerate(pairs, 1):
                if _differ(a, b) and 1 not in (a, b) and _is_elementwise(op):
                    return TypeConflict(
                        f"sizes {a} and {b} do not broadcast at axis -{axis}",
                        "sizes aligned from the last axis must be equal or 1",
                    )
    return None


def _is_elementwise(op: SchemaOp) -> bool:
    """Whether the result has the broadcast shape of all operands."""
    if op.op_type == "Einsum" or op.domain:  # these broadcast by rules of their own
        return False
    return len(op.results) == 1 and "broadcast" in str(op.SCHEMA.doc)


def _matmul(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    first, second = _shapes(operands[:2])
    if not first or not second:
        return None
    inner = second[-2] if len(second) > 1 else second[0]
    if not _differ(first[-1], inner):
        return None
    hint = "the last size of the first operand must equal the second-to-last of the second"
    if len(second) == 2 and second[1] == first[-1]:
        hint = (
            f"a weight is [inputs, outputs], here [{second[1]}, {second[0]}]; "
            "`Transpose(w, perm=[1, 0])` transposes it"
        )
    return TypeConflict(f"the inner dimensions are {first[-1]} and {inner}", hint)


def _gemm(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    first, second = _shapes(operands[:2])
    if first is None or second is None or len(first) != 2 or len(second) != 2:
        return None
    inner = first[0 if _number(op, "transA", 0) else 1]
    other = second[1 if _number(op, "transB", 0) else 0]
    if not _differ(inner, other):
        return None
    flipped = second[0 if _number(op, "transB", 0) else 1] == inner
    hint = "`transB` transposes the second operand, `transA` the first"
    if flipped:
        hint = f"`transB={int(not _number(op, 'transB', 0))}` would fit"
    return TypeConflict(f"the inner dimensions are {inner} and {other}", hint)


def _conv(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    image, weight = _shapes(operands[:2])
    if image is None or weight is None or len(image) < 2 or len(weight) < 2:
        return None
    if len(image) != len(weight):
        return TypeConflict(
            f"an image of {len(image)} axes needs a weight of {len(image)} axes, not {len(weight)}",
            "an image is [N, channels, height, width], a weight [outputs, inputs, 3, 3]",
        )
    group = _number(op, "group", 1)
    takes = weight[1] * group if isinstance(weight[1], int) else None
    if _differ(image[1], takes):
        of_groups = f", {group} groups of {weight[1]}" if group > 1 else ""
        return TypeConflict(
            f"the image has {image[1]} channels, the weight takes {takes}{of_groups}",
            "a weight is [outputs, inputs / group, height, width]",
        )
    return None


def _conv_transpose(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    image, weight = _shapes(operands[:2])
    if image is None or weight is None or len(image) < 2 or len(weight) < 2:
        return None
    if _differ(image[1], weight[0]):
        return TypeConflict(
            f"the image has {image[1]} channels, the weight takes {weight[0]}",
            "a transposed convolution's weight is [inputs, outputs / group, height, width]",
        )
    return None


def _concat(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    known = [shape for shape in _shapes(operands) if shape is not None]
    for other in known[1:]:
        if len(other) != len(known[0]):
            return TypeConflict(
                f"{len(known[0])} and {len(other)} axes cannot be concatenated",
                "all operands must have the same number of axes; `Unsqueeze` adds one",
            )
        axis = _number(op, "axis", 0) % max(1, len(other))
        for place, (a, b) in enumerate(zip(known[0], other, strict=True)):
            if place != axis and _differ(a, b):
                return TypeConflict(
                    f"sizes {a} and {b} differ at axis {place}",
                    f"only sizes along axis {axis} may differ",
                )
    return None


RESHAPE_HINT = "use -1 for the size that the others leave, 0 for an unchanged size"


def _reshape(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    before = None if operands[0] is None else static_shape(operands[0].type)
    after = static_shape(op.results[0].type)
    if before is None or after is None or prod(before) == prod(after):
        return None
    return TypeConflict(
        f"{prod(before)} elements do not become {prod(after)}",
        RESHAPE_HINT,
    )


def _channels(op: SchemaOp, operands: Operands) -> TypeConflict | None:
    """BatchNormalization and InstanceNormalization: parameters need one element per channel."""
    image, *rest = _shapes(operands)
    if image is None or len(image) < 2:
        return None
    for formal, shape in zip(op.SCHEMA.inputs[1:], rest, strict=False):
        if shape is not None and len(shape) == 1 and _differ(shape[0], image[1]):
            return TypeConflict(
                f"`{formal.name}` has {shape[0]} elements for {image[1]} channels",
                "axis 1 of the input is the channel axis",
            )
    return None


def _number(op: SchemaOp, name: str, default: int) -> int:
    held = op.properties.get(name)
    return held.value.data if isinstance(held, IntegerAttr) else default


_UNDETECTED: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "Reshape": _reshape,
    "BatchNormalization": _channels,
    "InstanceNormalization": _channels,
}
_RULES: dict[str, Rule] = {**_UNDETECTED, "MatMul": _matmul, "Concat": _concat}
