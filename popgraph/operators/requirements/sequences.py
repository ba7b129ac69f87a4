"""What ranges, windows of signals and other made-up tensors ask of the numbers that size them."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import axes_of, of_shape, one_element, wrong_sizes
from popgraph.operators.record import requires


@requires("BlackmanWindow", "HammingWindow", "HannWindow")
def window(node: NodeView) -> Complaints:
    yield from one_element(node, 0)
    yield from wrong_sizes(node.integers_of(0) or [])


@requires("AffineGrid")
def affine_grid(node: NodeView) -> Complaints:
    size = node.integers_of(1)
    if size is None:
        return
    if len(size) not in (4, 5) or min(size) < 1:
        yield TypeConflict(f"`size` is {size}", "it is [N, C, H, W] or [N, C, D, H, W]")
        return
    spatial = len(size) - 2
    yield from of_shape(node, 0, size[0], spatial, spatial + 1)


@requires("CenterCropPad")
def center_crop_pad(node: NodeView) -> Complaints:
    yield from axes_of(node, "axes", 99, node.rank_of(0))
    sizes = node.integers_of(1)
    if sizes is None:
        return
    yield from wrong_sizes(sizes)
    axes = node.given_integers("axes")
    count = node.rank_of(0) if axes is None else len(axes)
    if count is not None and len(sizes) != count:
        yield TypeConflict(f"`shape` has {len(sizes)} sizes for {count} axes", "one for each")
