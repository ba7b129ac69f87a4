"""
Benchmarks models whose sizes depend on data against onnxruntime, one thread, as JSON.

Networks: NonZero, Unique, Compress, NonMaxSuppression and TopK alone, a mask by NonZero and
GatherND, and a detector head (boxes, scores, NonMaxSuppression, gather). Data and sizes vary
between calls, so that branch predictors cannot learn them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from operator_cases import Array

import popgraph
from popgraph.measure.peers import PEERS, ready
from popgraph.measure.timing import Contestant, pin, race

PEER = "onnxruntime"
CALLS = 16
"""Different inputs, used alternately."""


@dataclass(frozen=True)
class Network:
    """A model and its inputs."""

    name: str
    model: onnx.ModelProto
    inputs: list[dict[str, Array]]


def network(
    name: str,
    nodes: list[onnx.NodeProto],
    outputs: Mapping[str, int],
    held: Mapping[str, Array],
    inputs: list[dict[str, Array]],
) -> Network:
    infos = [
        helper.make_tensor_value_info(
            given, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for given, array in inputs[0].items()
    ]
    made = [helper.make_tensor_value_info(given, kind, None) for given, kind in outputs.items()]
    constants = [numpy_helper.from_array(array, given) for given, array in held.items()]
    graph = helper.make_graph(nodes, name, infos, made, constants)
    opsets = [helper.make_opsetid("", 17)]
    return Network(name, helper.make_model(graph, opset_imports=opsets, ir_version=8), inputs)


def alone(
    text: str,
    node: onnx.NodeProto,
    draw: Callable[[np.random.Generator], dict[str, Array]],
    held: Mapping[str, Array] | None = None,
) -> Network:
    """
    A model of one operator.

    The first result is float for Compress and TopK, otherwise integer.
    """
    first = TensorProto.FLOAT if node.op_type in ("Compress", "TopK") else TensorProto.INT64
    outputs = {name: first if not at else TensorProto.INT64 for at, name in enumerate(node.output)}
    rng = np.random.default_rng(0)
    inputs = [draw(rng) for _ in range(CALLS)]
    return network(f"{node.op_type} {text}", [node], outputs, held or {}, inputs)


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def non_zero(size: int) -> Network:
    node = helper.make_node("NonZero", ["x"], ["y"])
    return alone(str(size), node, lambda rng: {"x": rng.random(size) < 0.3})


def unique(size: int) -> Network:
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"])
    return alone(str(size), node, lambda rng: {"x": rng.integers(0, size, size)})


def compress(*shape: int) -> Network:
    """Compress of half of the second-to-last axis."""
    node = helper.make_node("Compress", ["x", "keep"], ["y"], axis=len(shape) - 2)
    return alone(
        "x".join(map(str, shape)),
        node,
        lambda rng: {"x": floats(rng, *shape), "keep": rng.random(shape[-2]) < 0.5},
    )


def suppression(size: int) -> Network:
    """NonMaxSuppression of up to 100 boxes, with few strong overlaps."""
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "over"], ["y"])

    def draw(rng: np.random.Generator) -> dict[str, Array]:
        low = rng.uniform(0, 640, (1, size, 2))
        boxes = np.concatenate([low, low + rng.uniform(8, 80, low.shape)], -1)
        return {"boxes": boxes.astype(np.float32), "scores": floats(rng, 1, 1, size)}

    held = {"most": np.array([100]), "over": np.array([0.5], np.float32)}
    return alone(str(size), node, draw, held)


def top_k(count: int, rows: int, size: int) -> Network:
    node = helper.make_node("TopK", ["x", "k"], ["y", "at"])
    held = {"k": np.array([count])}
    return alone(
        f"{count} of {rows}x{size}", node, lambda rng: {"x": floats(rng, rows, size)}, held
    )


def mask(size: int) -> Network:
    """y = x[x > t], squared."""
    nodes = [
        helper.make_node("Greater", ["x", "t"], ["above"]),
        helper.make_node("NonZero", ["above"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"]),
        helper.make_node("GatherND", ["x", "rows"], ["kept"]),
        helper.make_node("Mul", ["kept", "kept"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    inputs = [{"x": rng.standard_normal(size).astype(np.float32)} for _ in range(CALLS)]
    held = {"t": np.array(0.5, np.float32)}
    return network(f"mask {size}", nodes, {"y": TensorProto.FLOAT}, held, inputs)


def detector(candidates: int, labels: int) -> Network:
    """The head of a YOLO: up to 300 boxes per label, with scores and labels."""
    nodes = [
        helper.make_node("Transpose", ["raw"], ["rows"], perm=[0, 2, 1]),
        helper.make_node("Split", ["rows", "parts"], ["boxes", "logits"], axis=2),
        helper.make_node("Transpose", ["logits"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Sigmoid", ["turned"], ["scores"]),
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "over", "least"],
            ["found"],
            center_point_box=1,
        ),
        helper.make_node("Split", ["found", "ones"], ["image", "label", "place"], axis=1),
        helper.make_node("Concat", ["image", "place"], ["at"], axis=1),
        helper.make_node("GatherND", ["boxes", "at"], ["kept"]),
        helper.make_node("GatherND", ["scores", "found"], ["score"]),
    ]
    held: dict[str, Array] = {
        "parts": np.array([4, labels]),
        "ones": np.array([1, 1, 1]),
        "most": np.array([300]),
        "over": np.array([0.45], np.float32),
        "least": np.array([0.25], np.float32),
    }
    rng = np.random.default_rng(0)
    inputs = []
    for _ in range(CALLS):
        raw = np.empty((1, 4 + labels, candidates), np.float32)
        raw[:, :2] = rng.uniform(0, 640, (1, 2, candidates))
        raw[:, 2:4] = rng.uniform(8, 160, (1, 2, candidates))
        raw[:, 4:] = rng.normal(-6, 2, (1, labels, candidates))
        inputs.append({"raw": raw})
    outputs = {"kept": TensorProto.FLOAT, "score": TensorProto.FLOAT, "label": TensorProto.INT64}
    return network(f"detector {candidates}x{labels}", nodes, outputs, held, inputs)


def measure(one: Network, seconds: float, rounds: int) -> dict[str, Any]:
    """The best times of both, after comparing results."""
    run = popgraph.compile(one.model, threads=1, quick=False)
    peers = [ready(PEERS[PEER], one.model, inputs, 1) for inputs in one.inputs]
    for inputs, peer in zip(one.inputs, peers, strict=True):
        ours, theirs = run(inputs), peer()
        assert all(np.allclose(ours[name], array, 1e-4) for name, array in theirs.items())
    given, calls = cycle(one.inputs), cycle(peers)
    contestants = [
        Contestant("ours", lambda: run(next(given))),
        Contestant(PEER, lambda: next(calls)()),
    ]
    race(contestants, threads=1, seconds=seconds, rounds=rounds)
    ours_ms, theirs_ms = (each.best * 1e3 for each in contestants)
    return {"case": one.name, "ours_ms": ours_ms, "theirs_ms": theirs_ms}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1, help="at least, for each case")
    parser.add_argument("--rounds", type=int, default=15, help="at least, for each case")
    arguments = parser.parse_args()
    pin(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPGRAPH_CACHE_DIR"] = folder
        sizes = (1000, 100_000)
        cases = [
            *(make(size) for make in (non_zero, unique, mask) for size in sizes),
            *(compress(*shape) for shape in ((1000, 1), (100_000, 1), (1000, 64), (10_000, 64))),
            *(compress(*shape) for shape in ((100, 64, 10), (8, 64, 256))),
            *(suppression(size) for size in (1000, 10_000)),
            *(top_k(*sizes) for sizes in ((300, 1, 8400), (300, 1, 100_000), (10, 64, 1000))),
            *(detector(8400, labels) for labels in (1, 80)),
        ]
        found = [measure(one, arguments.seconds, arguments.rounds) for one in cases]
    print(json.dumps({"model": "selections", "cases": found}, indent=1))


if __name__ == "__main__":
    main()
