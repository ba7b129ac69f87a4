"""What operators that only move elements ask of axes, sizes and places."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim, static_shape
from popgraph.dialects.onnx.view import NodeView, PartialShape
from popgraph.operators.complaints import (
    all_different,
    axes_of,
    in_range,
    listed,
    of_rank,
    one_element,
    shown,
    wrong_sizes,
)
from popgraph.operators.record import requires


@requires("Concat")
def concat(node: NodeView) -> Complaints:
    yield from in_range("axis", [node.integer("axis", 1)], node.rank_of(0))


@requires("Flatten")
def flatten(node: NodeView) -> Complaints:
    yield from in_range("axis", [node.integer("axis", 1)], node.rank_of(0), end=True)


@requires("Transpose")
def transpose(node: NodeView) -> Complaints:
    perm, rank = node.given_integers("perm"), node.rank_of(0)
    if perm is not None and rank is not None and sorted(perm) != list(range(rank)):
        yield TypeConflict(f"`perm` is {perm} for {rank} axes", "it names every axis once")


@requires("Split")
def split(node: NodeView) -> Complaints:
    axis, shape = node.integer("axis"), node.shape_of(0)
    yield from in_range("axis", [axis], node.rank_of(0))
    yield from listed(node, 1)
    size = shape[axis] if shape else None
    parts, outputs = node.given_integers("split", 1), len(node.op.output_names)
    count = node.integer("num_outputs", outputs)
    if count != outputs:
        yield TypeConflict(f"`num_outputs` is {count}, and there are {outputs}", "name them all")
    if parts is None and node.version < 18 and isinstance(size, int) and size % outputs:
        yield TypeConflict(f"{size} do not fall into {outputs} equal parts", "give `split`")
    if parts is None or (not parts and not node.has(1)):
        return
    if len(parts) != outputs:
        yield TypeConflict(f"{len(parts)} parts for {outputs} outputs", "one for each")
    if min(parts) < 0 or (isinstance(size, int) and sum(parts) != size):
        yield TypeConflict(f"the parts {parts} do not add up to {size}", "none is less than 0")


@requires("Slice")
def slice_(node: NodeView) -> Complaints:
    lists = [
        node.given_integers(name, i)
        for i, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    ]
    yield from listed(node, 1, 2, 4)
    lengths = {len(one) for one in lists if one is not None and one != []}
    if len(lengths) > 1:
        yield TypeConflict(f"lists of {sorted(lengths)} numbers", "one number for each axis")
    yield from axes_of(node, "axes", 3, node.rank_of(0))
    rank, starts = node.rank_of(0), lists[0] or []
    if lists[2] is None and rank is not None and len(starts) > rank:
        yield TypeConflict(f"{len(starts)} starts for {rank} axes", "one number for each axis")
    if 0 in (lists[3] or []):
        yield TypeConflict("a step is 0", "steps go forwards or backwards")


@requires("Pad")
def pad(node: NodeView) -> Complaints:
    """Versions differ in where the numbers stand, not in what they mean."""
    yield from one_element(node, 2)
    yield from listed(node, 1)
    yield from axes_of(node, "axes", 3, node.rank_of(0))
    name = "paddings" if node.version == 1 else "pads"
    pads, shape = node.given_integers(name, 1), node.shape_of(0)
    axes = list(range(len(shape))) if shape is not None else None
    if node.has(3):
        axes = node.integers_of(3)
    if pads is None or shape is None or axes is None:
        return
    if len(pads) != 2 * len(axes):
        yield TypeConflict(f"`{name}` has {len(pads)} numbers for {len(axes)} axes", "two for each")
        return
    for place, axis in enumerate(axes):
        yield from _padded(node, shape[axis], pads[place], pads[place + len(axes)])


def _padded(node: NodeView, size: object, low: int, high: int) -> Complaints:
    if not isinstance(size, int):
        return
    mode = node.text("mode", "constant")
    yield from wrong_sizes([size + low + high])
    left = size + min(low, 0) + min(high, 0)
    most = max(low, high)
    if left < 0:
        yield TypeConflict(f"{size} elements cannot lose {low} and {high}", "pad by less")
    elif mode != "constant" and most > 0 and left == 0:
        yield TypeConflict(f"an empty axis has no element to {mode}", "mode `constant` needs none")
    elif mode == "reflect" and most >= left and left > 1:
        yield TypeConflict(f"{left} elements are reflected {most} times", "once for each but one")


@requires("Squeeze")
def squeeze(node: NodeView) -> Complaints:
    yield from axes_of(node, "axes", 1, node.rank_of(0))
    axes, shape = node.given_integers("axes", 1) or [], node.shape_of(0)
    for axis in axes if shape else ():
        size = shape[axis] if shape else 1
        if isinstance(size, int) and size != 1:
            yield TypeConflict(f"axis {axis} has {size} elements", "only axes of one go away")


@requires("Unsqueeze")
def unsqueeze(node: NodeView) -> Complaints:
    rank, axes = node.rank_of(0), node.given_integers("axes", 1)
    yield from listed(node, 1)
    if rank is not None and axes is not None:
        yield from in_range("axis", axes, rank + len(axes))
        yield from all_different("`axes`", axes, rank + len(axes))


@requires("Reshape")
def reshape(node: NodeView) -> Complaints:
    wanted = node.given_integers("shape", 1)
    if node.has(1):
        yield from of_rank(node, 1, 1)
    if wanted is None:
        return
    if wanted.count(-1) > 1:
        yield TypeConflict(f"`shape` {wanted} has multiple -1", "one size follows from the others")
    if min(wanted, default=0) < -1:
        yield TypeConflict(f"`shape` is {wanted}", "sizes are 0 or more, and one of them may be -1")
    if node.integer("allowzero") and -1 in wanted and 0 in wanted:
        yield TypeConflict(f"what -1 is in {wanted} cannot be known", "leave `allowzero` out")
    value, rank = node.operand(0), node.rank_of(0)
    zeros = [] if node.integer("allowzero") else [at for at, n in enumerate(wanted) if n == 0]
    if rank is not None and any(at >= rank for at in zeros):
        yield TypeConflict(f"`shape` is {wanted} for {rank} axes", "0 keeps an axis that is there")
        return
    before = static_shape(value.type) if value is not None else None
    if before is None:
        return
    sizes = [before[at] if at in zeros else n for at, n in enumerate(wanted)]
    rest = prod(n for n in sizes if n != -1)
    fits = prod(before) % rest == 0 if -1 in sizes and rest else prod(before) == prod(sizes)
    if not fits:
        yield TypeConflict(
            f"{prod(before)} elements do not become {shown(sizes) if -1 in sizes else rest}",
            "`-1` stands for the size that the others leave, `0` for the one that was there",
        )


@requires("Expand")
def expand(node: NodeView) -> Complaints:
    yield from of_rank(node, 1, 1)
    yield from wrong_sizes(node.integers_of(1) or [])


@requires("Tile")
def tile(node: NodeView) -> Complaints:
    repeats, rank = node.integers_of(1), node.rank_of(0)
    if node.version == 1:
        yield from one_element(node, 1)
        yield from one_element(node, 2)
        yield from in_range("axis", node.integers_of(2) or [], rank)
        rank = 1
    if repeats is None or rank is None:
        return
    if len(repeats) != rank or min(repeats, default=0) < 0:
        yield TypeConflict(f"`repeats` is {repeats} for {rank} axes", "one number for each")


@requires("DepthToSpace")
def depth_to_space(node: NodeView) -> Complaints:
    yield from _blocks(node, lambda shape, block: [(shape[1], block * block)])


@requires("SpaceToDepth")
def space_to_depth(node: NodeView) -> Complaints:
    yield from _blocks(node, lambda shape, block: [(shape[2], block), (shape[3], block)])


def _blocks(
    node: NodeView, pairs: Callable[[PartialShape, int], list[tuple[Dim, int]]]
) -> Complaints:
    yield from of_rank(node, 0, 4)
    block, shape = node.integer("blocksize"), node.shape_of(0)
    if not 1 <= block < 2**31:
        yield TypeConflict(f"`blocksize` is {block}", "it is 1 or more")
        return
    for size, by in pairs(shape, block) if shape is not None else ():
        if isinstance(size, int) and size % by:
            yield TypeConflict(f"{size} do not fall into blocks of {by}", "another `blocksize`")
