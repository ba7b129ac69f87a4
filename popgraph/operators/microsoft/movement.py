"""onnxruntime's operators that gather, pad, crop and pool, and the inverse of a matrix."""

from __future__ import annotations

import numpy as np

from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.fusions import channels_first, channels_last
from popgraph.operators.record import STRUCTURE


@defines("SampleOp", "X")
def sample(call: Call) -> Value:
    return call["X"]


@defines("ExpandDims", "X axis")
def expand_dims(call: Call) -> Value:
    return call["X"].Unsqueeze(call["axis"].typed("i64").reshaped(1))


@defines("GatherND", "data indices")
def gather_nd(call: Call) -> Value:
    return call["data"].GatherND(call["indices"].typed("i64"))


@defines("Trilu", "X k")
def trilu(call: Call) -> Value:
    return call["X"].Trilu(call.get("k"), **call.copied("upper"))


@defines("Range", "start limit delta", without_gradient=STRUCTURE)
def counted(call: Call) -> Value:
    scalars = [call[name].reshaped() for name in ("start", "limit")]
    step = call.get("delta")
    return scalars[0].Range(scalars[1], scalars[0].number(1) if step is None else step.reshaped())


@defines("Pad", "data pads value")
def pad(call: Call) -> Value:
    return call["data"].Pad(call["pads"].reshaped(-1), call.get("value"), **call.copied("mode"))


@defines("UnfoldTensor", "input")
def unfold_tensor(call: Call) -> Value:
    """Sliding windows of an axis; the elements of a window are a new last axis."""
    rank, size, step = call.rank("input"), call.needs("size"), call.integer("step", 1)
    axis = call.integer("dim", -1) % rank
    starts = np.arange(0, call.size("input", axis) - size + 1, step)
    windows = call["input"].Gather(starts[:, None] + np.arange(size), axis=axis)
    kept = [at for at in range(rank + 1) if at != axis + 1]
    return windows.permuted(*kept, axis + 1)


@defines("CDist", "A B")
def distances(call: Call) -> Value:
    squared = call.one_of("metric", "sqeuclidean", "euclidean") == "sqeuclidean"
    difference = call["A"].Unsqueeze([1]) - call["B"].Unsqueeze([0])
    found = (difference * difference).ReduceSum([2], keepdims=0)
    return found if squared else found.Sqrt()


# Images


@defines("GridSample", "X Grid")
def grid_sample(call: Call) -> Value:
    mode = call.one_of("mode", "bilinear", "nearest", "bicubic")
    own = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    given = call.copied("align_corners padding_mode")
    if mode == "bicubic" and given.get("padding_mode") == "border":
        raise call.refuse(
            "padding_mode = 'border' in the mode 'bicubic'",
            "use ONNX's GridSample, which defines this case differently from onnxruntime",
        )
    return call["X"].GridSample(call["Grid"], mode=own, **given)


@defines("NhwcMaxPool", "x", without_gradient="it takes integers")
def nhwc_max_pool(call: Call) -> Value:
    given = call.copied("auto_pad ceil_mode dilations kernel_shape pads strides")
    rank = call.rank("x")
    return channels_last(channels_first(call["x"], rank).MaxPool(**given), rank)


@defines("ConvTransposeWithDynamicPads", "X W Pads B")
def conv_transpose_with_dynamic_pads(call: Call) -> Value:
    """ConvTranspose without pads, sliced by the pads that are computed at run time."""
    given = call.copied("dilations group kernel_shape output_padding strides")
    made = call["X"].ConvTranspose(call["W"], call.get("B"), **given)
    pads, count = call.get("Pads"), call.rank("X") - 2
    if pads is None:
        return made
    ends = made.Shape(start=2) - pads.part(count, 2 * count, 0)
    return made.Slice(pads.part(0, count, 0), ends, list(range(2, count + 2)))


@defines("CropAndResize", "X rois batch_indices crop_size")
def crop_and_resize(call: Call) -> Value:
    """Crops boxes of images and resizes them, by GridSample at evenly spaced points."""
    is_nearest = call.one_of("mode", "bilinear", "nearest") == "nearest"
    y, x = (_steps(call, at) for at in (0, 1))
    rows, columns = (one.Unsqueeze([at]) for one, at in ((y, 2), (x, 1)))
    inside = _unit(rows) & _unit(columns)
    if is_nearest:
        rows, columns = (_whole(call, one, at) for one, at in ((rows, 2), (columns, 3)))
    grid = [one.Expand(inside.Shape()).Unsqueeze([3]) for one in (columns, rows)]
    places = grid[0].Concat(grid[1], axis=3) * 2 - 1
    one = call.shape("X")[0] == 1
    images = call["X"] if one else call["X"].Gather(call["batch_indices"])
    found = images.GridSample(
        _of_one_image(call, places) if one else places,
        mode="nearest" if is_nearest else "linear",
        align_corners=1,
        padding_mode="border",
    )
    if one:
        shape = call.body.constant(np.array([call.size("X", 1)])).Concat(inside.Shape(), axis=0)
        found = found.Reshape(shape).permuted(1, 0, 2, 3)
    return inside.Unsqueeze([1]).Where(found, found.number(call.real("extrapolation_value")))


def _of_one_image(call: Call, places: Value) -> Value:
    """
    The points of all boxes in one row, so that a single image is not copied for each box.

    The image index is gathered all the same, so that an index out of range is reported.
    """
    numbers = call.body.constant(np.zeros(1, np.int64)).Gather(call["batch_indices"])
    return (places + numbers.CastLike(places).Unsqueeze([1, 2, 3])).reshaped(1, -1, 1, 2)


def _steps(call: Call, axis: int) -> Value:
    """The positions in [0, 1] of each box's rows or columns; a single one is in the middle."""
    start, end = (call["rois"].part(at, at + 1, 1) for at in (axis, axis + 2))
    count = call["crop_size"].typed("i64").part(axis, axis + 1, 0).Squeeze()
    steps = call.body.counted(count).CastLike(start)
    last = (count - 1).CastLike(start)
    even = start + (end - start) * steps / last.Max(start.number(1))
    return (last > 0).Where(even, (start + end) * 0.5)


def _unit(places: Value) -> Value:
    return (places >= 0) & (places <= 1)


def _whole(call: Call, places: Value, axis: int) -> Value:
    """Positions rounded to the nearest element; ties go to the later one."""
    last = (call["X"].length(axis) - 1).CastLike(places).Max(places.number(1))
    return (places * last + 0.5).Floor() / last


@defines("MaxpoolWithMask", "X M", ignored="storage_order")
def max_pool_with_mask(call: Call) -> Value:
    """
    The maximum over each window's rows, where a row ends at the first mask element of 0.

    As in onnxruntime, the very first element counts regardless of its mask, except in one
    dimension. Masks of several channels are refused, as onnxruntime reads wrong elements of them.
    """
    if any(call.size("M", axis) != 1 for axis in (0, 1)):
        raise call.refuse("a mask of several channels", "use one mask for all images and channels")
    window, count = call.integers("kernel_shape"), call.rank("X") - 2
    pads = call.integers("pads") or [0] * (2 * count)
    strides = call.integers("strides") or [1] * count
    lowest = call["X"].number(float(np.finfo(np.float32).min))
    around = [0, 0, *pads[:count], 0, 0, *pads[count:]]
    x, axes = call["X"].Pad(around, lowest), list(range(2, count + 2))
    first = np.zeros([call.size("M", axis) for axis in range(count + 2)], np.int32)
    first.flat[0] = count > 1
    shown = call["M"].same(0).Not().typed("i32").Max(call.body.constant(first))
    mask = shown.Pad(around, call.body.constant(np.array(1, np.int32)))
    ends = x.Shape(start=2) - np.array(window) + 1
    found = None
    for outer in np.ndindex(*window[:-1]):
        alive = None
        for inner in range(window[-1]):
            starts = [*map(int, outer), inner]
            stops = ends.Add(starts)
            value, shown = (one.Slice(starts, stops, axes, strides) for one in (x, mask))
            alive = shown if alive is None else alive * shown
            seen = (alive > 0).Where(value, lowest)
            found = seen if found is None else found.Max(seen)
    if found is None:
        raise call.unfit()
    return found


@defines("Inverse", "X")
def inverse(call: Call) -> Value:
    """
    Gauss-Jordan elimination of [matrix | identity], one column per iteration.

    The pivot is the largest element of the column in rows without a pivot (partial pivoting).
    Rows of the inverse are then permuted by the pivots.
    """
    x, size = call.wide("X"), call.size("X", -1)
    matrices = x.reshaped(-1, size, size)
    unit = np.eye(size, dtype=np.float32)
    zeros = matrices * 0
    start = matrices.Concat(zeros + call.body.constant(unit).CastLike(x), axis=2)
    columns = call.body.constant(np.eye(size, 2 * size, dtype=np.float32)).CastLike(x)
    left, _, chosen = call.body.scanned(
        [start, zeros.part(0, 1, 2)], columns, lambda body, *now: _eliminated(size, body, *now)
    )
    found = chosen.permuted(1, 0, 2) @ left.part(size, 2 * size, 2)
    return found.Reshape(call["X"].Shape()).CastLike(call["X"])


def _eliminated(
    size: int, body: Body, left: Value, used: Value, column: Value
) -> tuple[Value, Value, Value]:
    """The eliminated matrices, the 0/1 mask of rows with a pivot, and that of this pivot's row."""
    elements = (left * column).ReduceSum([2])
    place = ((1 - used) * elements.Abs() - used).ArgMax(axis=1, keepdims=0)
    is_pivot = body.counted(size).Unsqueeze([0]).same(place)
    chosen = is_pivot.CastLike(left).Unsqueeze([2])
    row = (left * chosen).ReduceSum([1]) / (elements * chosen).ReduceSum([1])
    others = 1 - chosen
    rest = others * left - others * elements * row + chosen * row
    return rest, used + chosen, chosen.Squeeze([2])
