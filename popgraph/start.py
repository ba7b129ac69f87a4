"""The entry point `popgraph.compile`, which starts cached programs without the compiler."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from popgraph.backends.c.run.warm_start import recall
from popgraph.runner import Runner

if TYPE_CHECKING:
    from popgraph.passes.options import Options


def compile(
    model: Any,
    *,
    threads: int = 1,
    backend: str = "c",
    options: Options | None = None,
    indices: str | None = None,
) -> Runner:
    """
    Makes a model ready to run.

    `model` is a path (.onnx, .pgraph, .mlir), ONNX bytes, a ModelProto, a Builder or an IR module;
    `backend` is "c", or "reference" for NumPy. `indices` says what one out of range means that the
    inputs bring: "error" (a run ends with an IndicesError), else "nearest"; without it, an error
    in the reference and in training.
    """
    found = recall(model, options, threads, indices) if backend == "c" else None
    if found is not None:
        return Runner(found)
    compiler = import_module("popgraph.compiler")
    made: Runner = compiler.compile(
        model, threads=threads, backend=backend, options=options, indices=indices
    )
    return made
