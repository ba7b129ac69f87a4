"""Tests that coordinates along axes of size 1 are finite, and equal those of other runtimes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from popgraph.support.arrays import Array
from tests.one_node import close, normal, of_both, of_peer
from tests.resizings import COORDINATES, MODES


class Node(NamedTuple):
    """The inputs of a node (the first is fed, others are constants) and its attributes."""

    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any]


def affine_grids() -> Iterator[Node]:
    sizes = ((1, 1, 1, 1), (1, 1, 1, 3), (2, 1, 3, 1), (1, 1, 1, 2, 3), (1, 1, 2, 1, 1))
    for size, aligned in product(sizes, (0, 1)):
        rank = len(size) - 2
        theta = normal((size[0], rank, rank + 1))
        yield Node((theta, np.array(size)), {"align_corners": aligned})


def resizings() -> Iterator[Node]:
    region = np.array([0, 0, 0.1, 0.2, 1, 1, 0.7, 0.9], np.float32)
    shapes = (((1, 1, 4, 4), (1, 1, 1, 3)), ((1, 1, 1, 4), (1, 1, 3, 1)))
    for mode, coordinates, (shape, size) in product(MODES, COORDINATES, shapes):
        roi = region if coordinates == "tf_crop_and_resize" else None
        attributes: dict[str, Any] = {"mode": mode}
        attributes["coordinate_transformation_mode"] = coordinates
        yield Node((normal(shape), roi, None, np.array(size)), attributes)


def grid_samples() -> Iterator[Node]:
    paddings = ("zeros", "border", "reflection")
    for shape in ((1, 1, 1, 3), (1, 1, 2, 1, 1)):
        rank = len(shape) - 2
        grid = np.linspace(-1.7, 1.9, rank * 3**rank, dtype=np.float32)
        modes = MODES if rank == 2 else MODES[:2]
        for mode, padding, aligned in product(modes, paddings, (0, 1)):
            attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
            yield Node((normal(shape), grid.reshape(1, *[3] * rank, rank)), attributes)


def regions() -> Iterator[Node]:
    for mode, coordinates, side in product(
        ("avg", "max"), ("half_pixel", "output_half_pixel"), (1, 2)
    ):
        boxes = np.array([[0, 0, 0, 0], [0, 0, 1, 1]], np.float32)
        attributes: dict[str, Any] = {"mode": mode}
        attributes["coordinate_transformation_mode"] = coordinates
        attributes |= {"output_height": side, "output_width": side}
        yield Node((normal((1, 1, 4, 1)), boxes, np.array([0, 0])), attributes)


OPERATORS = {
    "AffineGrid": affine_grids,
    "Resize": resizings,
    "GridSample": grid_samples,
    "RoiAlign": regions,
}


def together(operator: str, nodes: list[Node]) -> tuple[ModelProto, dict[str, Array]]:
    """One model of all nodes, to compile only once, and its inputs."""
    fed, infos, held, made, outputs = {}, [], [], [], []
    for place, (inputs, attributes) in enumerate(nodes):
        names = ["" if array is None else f"x{place}_{at}" for at, array in enumerate(inputs)]
        for at, (name, array) in enumerate(zip(names, inputs, strict=True)):
            if array is None:
                continue
            if at:
                held.append(numpy_helper.from_array(array, name))
            else:
                fed[name] = array
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                infos.append(helper.make_tensor_value_info(name, kind, array.shape))
        made.append(helper.make_node(operator, names, [f"y{place}"], **attributes))
        outputs.append(helper.make_empty_tensor_value_info(f"y{place}"))
    graph = helper.make_graph(made, "g", infos, outputs, held)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), fed


def of_reference(operator: str, node: Node) -> Array:
    proto, fed = together(operator, [node])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AffineGrid divides by 0
        return np.asarray(ReferenceEvaluator(proto).run(None, fed)[0])


def agree(one: Array, other: Array) -> bool:
    try:
        close(one, other)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("operator", OPERATORS)
def test_coordinates_along_axes_of_size_1_equal_a_peer(operator: str, tmp_path: Path) -> None:
    nodes = list(OPERATORS[operator]())
    proto, fed = together(operator, nodes)
    found, runtime = of_both(proto, fed), of_peer(proto, fed, tmp_path)
    for (name, array), node in zip(found.items(), nodes, strict=True):
        assert np.isfinite(array).all(), node
        assert agree(array, runtime[name]) or agree(array, of_reference(operator, node)), node
