"""ImageDecoder, computed by Pillow, and CenterCropPad, lowered by its function body."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np
from onnx import FunctionProto, TensorProto, helper

from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import axes_of, wrong_sizes
from popgraph.operators.record import chooses, computes, mends, requires
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError

chooses("ImageDecoder", pixel_format=("RGB", "BGR", "Grayscale"))


@computes("ImageDecoder")
def image_decoder(node: NodeView, encoded: Array) -> Array:
    """
    Pixels in the node's `pixel_format`, whatever format the file has.

    Bytes that cannot be decoded give an empty image, as ONNX says; its reference raises. The
    reference also keeps grey, transparent and palette images in the format of the file.
    """
    library = _pillow()
    pixel_format = node.attribute("pixel_format")
    mode = "L" if pixel_format == "Grayscale" else "RGB"
    try:
        with library.open(io.BytesIO(encoded.tobytes())) as image:
            pixels = np.array(image.convert(mode))
    except Exception:  # ONNX: "if it can't decode for any reason"
        pixels = np.zeros((0, 0, len(mode)), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], len(mode))
    return np.ascontiguousarray(pixels[..., ::-1]) if pixel_format == "BGR" else pixels


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise RunError(
            "ImageDecoder needs the package Pillow", hint='pip install "popgraph[images]"'
        ) from error


@requires("CenterCropPad")
def require_center_crop_pad(node: NodeView) -> Conflicts:
    yield from axes_of(node, "axes", None, node.rank_of(0))
    sizes = node.integers_of(1)
    if sizes is None:
        return
    yield from wrong_sizes(sizes)
    axes = node.given_integers("axes")
    count = node.rank_of(0) if axes is None else len(axes)
    if count is not None and len(sizes) != count:
        yield TypeConflict(
            f"`shape` has {len(sizes)} sizes for {count} axes", "give one size per axis"
        )


@mends("CenterCropPad")
def retype_sizes(proto: FunctionProto, op: SchemaOp) -> None:
    """Casts the sizes, which may be i32, to i64: the body combines them with Shape's i64."""
    sizes, wide = proto.input[1], "popgraph_sizes"
    for node in proto.node:
        node.input[:] = [wide if name == sizes else name for name in node.input]
    proto.node.insert(0, helper.make_node("Cast", [sizes], [wide], to=TensorProto.INT64))
