"""What Fourier transforms and mel weights ask of lengths, axes, windows and frequencies."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import at_least, in_range, of_rank, of_shape, one_element
from popgraph.operators.record import requires

_MOST = 2**31 - 1


def _number(node: NodeView, index: int) -> int | None:
    return next(iter(node.integers_of(index) or []), None)


def _positive(node: NodeView, index: int, what: str) -> Complaints:
    yield from one_element(node, index)
    number = _number(node, index)
    if number is not None and not 1 <= number <= _MOST:
        yield TypeConflict(f"{what} is {number}", "it is 1 or more")


def _parts(node: NodeView, is_real: bool | None) -> Complaints:
    """Whether numbers have one part, or a real and an imaginary one."""
    size = (node.shape_of(0) or (None,))[-1]
    wanted = (1, 2) if is_real is None else (1,) if is_real else (2,)
    if isinstance(size, int) and size not in wanted:
        yield TypeConflict(
            f"numbers of {size} parts",
            f"the last axis has {' or '.join(map(str, wanted))}: one for real numbers, two for "
            "complex ones; `onesided` is about the transform of real ones",
        )


@requires("DFT")
def fourier_transform(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 2)
    onesided = node.integer("onesided")
    yield from _parts(node, not node.integer("inverse") if onesided else None)
    yield from _positive(node, 1, "`dft_length`")
    yield from one_element(node, 2)
    axis = node.integer("axis", 1) if node.version < 20 else _number(node, 2)
    axis, shape = -2 if axis is None else axis, node.shape_of(0)
    if shape is None:
        return
    yield from in_range("axis", [axis], len(shape))
    if axis % len(shape) == len(shape) - 1:
        yield TypeConflict(f"axis {axis} has the parts of numbers", "choose another one")
    size, least = shape[axis], 2 if onesided and node.integer("inverse") else 1
    if not node.has(1) and isinstance(size, int) and size < least:
        yield TypeConflict(f"a transform of {size} numbers", f"it is of {least} or more")


@requires("STFT")
def short_time_fourier_transform(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 3)
    yield from _parts(node, True if node.integer("onesided", 1) else None)
    yield from _positive(node, 1, "`frame_step`")
    yield from of_rank(node, 2, 1)
    yield from _positive(node, 3, "`frame_length`")
    shape, window, length = node.shape_of(0), node.shape_of(2), _number(node, 3)
    if length is not None:
        yield from of_shape(node, 2, length)
    found = window[0] if length is None and window else length
    if shape is None:
        return
    size = shape[1]
    if found == 0 or (not node.has(2) and not node.has(3) and size == 0):
        yield TypeConflict("frames have no elements", "they have 1 or more")
    if isinstance(size, int) and isinstance(found, int) and found > size:
        yield TypeConflict(f"frames of {found} of a signal of {size}", "no longer than the signal")


@requires("MelWeightMatrix")
def mel_weight_matrix(node: NodeView) -> Complaints:
    for index, name in enumerate(("num_mel_bins", "dft_length", "sample_rate")):
        yield from _positive(node, index, f"`{name}`")
    for index in (3, 4):
        yield from one_element(node, index)
    edges = [node.elements_of(index) for index in (3, 4)]
    rate = _number(node, 2)
    if edges[0] is None or edges[1] is None or rate is None:
        return
    low, high = (float(edge.reshape(-1)[0]) for edge in edges if edge is not None)
    if not 0 <= low <= high <= rate / 2:
        yield TypeConflict(
            f"bands from {low:g} to {high:g} Hz at {rate} Hz",
            "the edges are between 0 and half the sample rate, the lower one first",
        )
