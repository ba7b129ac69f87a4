"""Patterns that drop copies and write operators as simpler ones."""

from __future__ import annotations

from popgraph.builder.opset.enums import RecomputeType
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.expression import added, finish
from popgraph.session.popart_ir.graph import Op, OpGraph, words
from popgraph.support.shapes import prod

_COPIES = frozenset(["Identity", "IdentityGrad", "AddBiasDataGrad", "IfConditionGrad"])
_RESHAPES = frozenset(["Reshape", "ReshapeGrad", "Flatten"])
_VARIADIC = frozenset(["Sum", "Max", "Min", "Mean", "Concat"])
_SAME_SHAPE = words(
    """
    AddArg0Grad AddArg1Grad SubArg0Grad SumArgGrad AddBiasBiasGrad Reshape ReshapeGrad Expand
    Tile ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceSumSquare
    """
)
"""What only copies if the shape stays."""

_POOLS = frozenset(["AveragePool", "MaxPool"])
_LARGEST = 3.4028234663852886e38


def before_one(graph: OpGraph, op: Op) -> bool:
    """x -> op -> Sum of one -> y  becomes  x -> op -> y. Only when nothing else reads x."""
    if not (_is_sum_of_one(op) or _pads_nothing(op)):
        return False
    before = graph.producer(op.input(0))
    if before is None or graph.uses(op.input(0)) != 1 or graph.is_protected(op.input(0)):
        return False
    index = next(index for index, id in before.outputs.items() if id == op.input(0))
    output = op.output
    graph.remove(op)
    graph.rename_output(before, index, output)
    return True


def after_copy(graph: OpGraph, op: Op) -> bool:
    """
    A copy, whose readers read what it copies.

    Only when the copy is not anchored, and was not told when to run, as what is tied to a product.
    """
    copies = op.type in _COPIES or _is_sum_of_one(op) or _pads_nothing(op)
    if (
        not copies
        or op in graph.ordered
        or any(graph.is_protected(id) for id in op.outputs.values())
    ):
        return False
    for id in op.outputs.values():
        graph.replace_uses(id, op.input(0))
    graph.remove(op)
    return True


def _is_sum_of_one(op: Op) -> bool:
    return op.type == "Sum" and len(op.inputs) == 1


def _pads_nothing(op: Op) -> bool:
    return op.type == "Pad" and "pads" in op.attributes and not any(op.integers("pads"))


def op_to_identity(graph: OpGraph, op: Op, *, trains: bool) -> bool:
    """An operator that changes nothing -> Identity."""
    if not _changes_nothing(graph, op, trains=trains):
        return False
    for index in [index for index in op.inputs if index != min(op.inputs)]:
        _disconnect(graph, op, index)
    op.type, op.attributes = "Identity", {}
    return True


def _disconnect(graph: OpGraph, op: Op, index: int) -> None:
    graph.connect(op, index, op.inputs[min(op.inputs)])
    del op.inputs[index]


def _changes_nothing(graph: OpGraph, op: Op, *, trains: bool) -> bool:
    shapes = [graph.shape(op.input(min(op.inputs)))] if op.inputs else [[]]
    shapes += [graph.shape(op.output)] if op.outputs else [[]]
    match op.type:
        case type_ if type_ in _VARIADIC and len(op.inputs) == 1:
            return True
        case type_ if type_ in _SAME_SHAPE:
            return len(op.outputs) == 1 and shapes[0] == shapes[1]
        case "Pad":
            return _pads_nothing(op)
        case "PrintTensor":
            return op.attributes.get("print_self") == 0
        case "Dropout" | "ShapedDropout":
            return len(op.outputs) == 1 and (not trains or op.attributes.get("ratio") == 0)
        case "IdentityLoss":
            return op.attributes.get("reduction") == "None" or not shapes[0]
        case "IdentityLossGrad":
            return op.attributes.get("reduction") == "None"
        case "Cast" | "CastGrad":
            return graph.infos[op.input(0)] == graph.infos[op.output]
        case "Scale" | "ScaleGrad":
            return op.attributes.get("scale") == 1
        case "Transpose" | "TransposeGrad":
            perm = op.integers("perm")
            return bool(perm) and perm == sorted(perm)
        case "Reverse" | "ReverseGrad":
            return op.attributes.get("dimensions") == []
        case "Subsample":
            return "strides" in op.attributes and prod(op.integers("strides")) == 1
        case "Gather":
            data, indices = graph.shape(op.input(0)), graph.shape(op.input(1))
            return data[op.integers_or("axis", 0)] == 1 and indices == [1]
        case "Clip":
            bounds = (op.attributes.get("min"), op.attributes.get("max"))
            return bounds == (-_LARGEST, _LARGEST)
        case type_ if type_ in _POOLS:
            return len(op.outputs) == 1 and _pools_nothing(op)
    return False


def _pools_nothing(op: Op) -> bool:
    kernel, strides = op.integers("kernel_shape"), op.integers("strides")
    return prod(kernel) == 1 and prod(strides) == 1 and not any(op.integers("pads"))


def sum_to_add(graph: OpGraph, op: Op) -> bool:
    """Sum(a, b) -> Add(a, b)."""
    if op.type != "Sum" or len(op.inputs) != 2:
        return False
    op.type = "Add"
    return True


def negative_scale(graph: OpGraph, op: Op) -> bool:
    """Scale(x, -1) -> Neg(x)."""
    if op.type not in ("Scale", "ScaleGrad") or op.attributes.get("scale") != -1:
        return False
    op.type, op.attributes = "Neg", {}
    return True


def split(graph: OpGraph, op: Op) -> bool:
    """Split(x) -> a Slice of x for each part."""
    if op.type != "Split":
        return False
    source, axis = op.input(0), op.integers_or("axis", 0)
    start = 0
    for id in list(op.outputs.values()):
        starts, ends = [0] * len(graph.shape(source)), graph.shape(source)
        starts[axis], ends[axis] = start, start + graph.shape(id)[axis]
        start = ends[axis]
        attributes: dict[str, object] = {"starts": starts, "ends": ends}
        attributes["axes"] = list(range(len(starts)))
        made = Op("Slice", {0: source}, {0: id}, attributes, op.settings, backward=op.backward)
        graph.add(made, before=op)
        graph.rename_output(made, 0, id)
    graph.forget(op)
    return True


def strided_slice(graph: OpGraph, op: Op) -> bool:
    """Slice(x) with steps -> Subsample(Slice(x)). Only when a step is longer than 1."""
    steps, rank = op.integers("_steps"), len(graph.shape(op.output))
    if op.type != "Slice" or not any(abs(step) > 1 for step in steps):
        return False
    axes = op.integers("_axes") or list(range(len(steps)))
    source, strides = graph.shape(op.input(0)), [1] * rank
    attributes = {**op.attributes, "_steps": [1 if step > 0 else -1 for step in steps]}
    shape, bounds = list(source), [op.integers("_starts"), op.integers("_ends")]
    for axis, step, start, end in zip(axes, steps, *bounds, strict=True):
        shape[axis] = len(range(source[axis])[start : end : 1 if step > 0 else -1])
        strides[axis] = abs(step)
    info = TensorInfo(graph.infos[op.output].data_type(), shape)
    cut = added(graph, op, "Slice", [op.input(0)], info, attributes)
    sampled: dict[str, object] = {"strides": strides}
    finish(graph, op, added(graph, op, "Subsample", [cut], graph.infos[op.output], sampled))
    return True


def split_gradient(graph: OpGraph, op: Op) -> bool:
    """SplitGrad(a, b, ...) -> Concat(a, b, ...)."""
    if op.type != "SplitGrad":
        return False
    op.type, op.attributes = "Concat", {"axis": op.attributes.get("axis", 0)}
    return True


def random_normal_like(graph: OpGraph, op: Op) -> bool:
    """RandomNormalLike(x) -> RandomNormal."""
    return _alone(graph, op, "RandomNormalLike", "RandomNormal")


def random_uniform_like(graph: OpGraph, op: Op) -> bool:
    """RandomUniformLike(x) -> RandomUniform."""
    return _alone(graph, op, "RandomUniformLike", "RandomUniform")


def zeros_like(graph: OpGraph, op: Op) -> bool:
    """ZerosLike(x) -> Zeros."""
    return _alone(graph, op, "ZerosLike", "Zeros")


def _alone(graph: OpGraph, op: Op, old: str, new: str) -> bool:
    """What reads a tensor only for its shape need not read it."""
    if op.type != old:
        return False
    made = Op(new, {}, dict(op.outputs), dict(op.attributes), op.settings, backward=op.backward)
    graph.add(made, before=op)
    graph.forget(op)
    return True


def scan_to_loop(graph: OpGraph, op: Op) -> bool:
    """Scan -> Loop, which takes its slices itself."""
    if op.type != "Scan":
        return False
    op.type = "Loop"
    return True


def cast_of_expanded(graph: OpGraph, op: Op) -> bool:
    """Cast(Expand(x)) -> Expand(Cast(x)). Only when nothing else reads what is expanded."""
    before = graph.producer(op.input(0)) if op.type == "Cast" else None
    if before is None or before.type != "Expand" or graph.uses(before.output) != 1:
        return False
    if graph.is_protected(before.output):
        return False
    small, wanted = graph.infos[before.input(0)], graph.infos[op.output]
    info = TensorInfo(wanted.data_type(), small.shape())
    cast = added(graph, op, "Cast", [before.input(0)], info, op.attributes)
    made = added(graph, op, "Expand", [cast], wanted, before.attributes)
    graph.remove(before)
    finish(graph, op, made)
    return True


def upsample(graph: OpGraph, op: Op) -> bool:
    """Upsample -> Resize."""
    if op.type != "Upsample":
        return False
    op.type = "Resize"
    return True


def needless_transpose(graph: OpGraph, op: Op) -> bool:
    """
    Transpose(Transpose(x)) -> Identity(x), and Transpose(Reshape(Transpose(x))) -> Reshape(x).

    Only when the second undoes the first, and what is between them only adds axes of one element,
    which stay where they are. Copies may be between them, too.
    """
    if op.type not in ("Transpose", "TransposeGrad"):
        return False
    perm, added_axes = permutation(graph, op), list[int]()
    before = graph.producer(op.input(0))
    while before is not None and before.type not in ("Transpose", "TransposeGrad"):
        if before.type in ("Reshape", "ReshapeGrad") and not added_axes:
            added_axes = _added_axes(graph.shape(before.input(0)), graph.shape(before.output))
            if not added_axes or any(perm[axis] != axis for axis in added_axes):
                return False
        elif before.type not in _COPIES:
            return False
        before = graph.producer(before.input(0))
    left = [axis for axis in perm if axis not in added_axes]
    left = [axis - sum(one < axis for one in added_axes) for axis in left]
    if before is None or permutation(graph, before) != inverse(left):
        return False
    graph.connect(op, 0, before.input(0))
    op.type, op.attributes = "Reshape" if added_axes else "Identity", {}
    return True


def _added_axes(small: list[int], large: list[int]) -> list[int]:
    """The axes of one element by which a shape is larger than another; none if it has others."""
    left, found = list(small), []
    for axis, size in enumerate(large):
        if left and left[0] == size:
            left.pop(0)
        elif size == 1:
            found.append(axis)
        else:
            return []
    return [] if left else found


def simplify_views(graph: OpGraph) -> None:
    """
    Reshape(Reshape(x)) -> Reshape(x), as with copies in place of either.

    Only when what is between them is not anchored. It is still computed, and is computed before.
    """
    for op in sorted(graph.ops, key=lambda op: op.number):
        before = graph.producer(op.input(0)) if op.type in _COPIES | _RESHAPES else None
        if before is None or before.type not in _COPIES | _RESHAPES:
            continue
        if graph.is_protected(op.input(0)) or _is_recomputed_for(graph, before):
            continue
        if op.type in _COPIES and before.type in _RESHAPES:
            op.type = "Reshape"
        graph.connect(op, 0, before.input(0))
        graph.run_after(op, before)


def _is_recomputed_for(graph: OpGraph, op: Op) -> bool:
    """Whether an operator, which is not computed again, reads what is."""
    before = graph.producer(op.input(0))
    kept = op.backward or op.settings.recompute is RecomputeType.Checkpoint
    return kept and before is not None and before.settings.recompute is RecomputeType.Recompute


def permutation(graph: OpGraph, op: Op) -> list[int]:
    """The order of axes of a Transpose, or of the gradient of one."""
    given = op.integers("perm") or list(range(len(graph.shape(op.input(0)))))[::-1]
    return inverse(given) if op.type == "TransposeGrad" else given


def inverse(perm: list[int]) -> list[int]:
    return sorted(range(len(perm)), key=perm.__getitem__)


def transposed(graph: OpGraph, op: Op, id: str) -> str:
    """Adds a Transpose of the last two axes before an operator."""
    info = graph.infos[id]
    axes = list(range(info.rank()))
    axes[-2:] = axes[:-3:-1]
    shape = [info.shape()[axis] for axis in axes]
    turned = TensorInfo(info.data_type(), shape)
    return added(graph, op, "Transpose", [id], turned, {"perm": axes})
