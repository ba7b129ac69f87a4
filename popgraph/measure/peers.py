"""Other runtimes as peers of a benchmark: onnxruntime, OpenVINO, PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME
from popgraph.support.errors import PopgraphError, UnsupportedError

Outputs: TypeAlias = dict[str, Array]
Run: TypeAlias = Callable[[], Outputs]


@dataclass(frozen=True)
class Peer:
    """Another runtime: how it is got, and how it loads a model."""

    name: str
    install: str
    load: Callable[[Any, Mapping[str, Array], int], Run]
    """From a ModelProto, its inputs and the number of threads to a run that gives its outputs."""
    many: bool = False
    """It computes in threads of its own."""


def onnxruntime(model: Any, inputs: Mapping[str, Array], threads: int) -> Run:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return lambda: dict(zip(names, session.run(None, inputs), strict=True))


def openvino(model: Any, inputs: Mapping[str, Array], threads: int) -> Run:
    runtime = import_module("openvino")
    core = runtime.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": _precision(model),
    }
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings)
    request = compiled.create_infer_request()
    # A tensor may have several names: it is asked for by the model's.
    named = [(value.name, compiled.output(value.name)) for value in model.graph.output]

    def run() -> Outputs:
        found = request.infer(inputs)
        return {name: found[output] for name, output in named}

    return run


def _precision(model: Any) -> str:
    """
    What OpenVINO may compute in: bf16 where most weights are.

    Asked for f16, it would take bf16 as well where a machine has instructions for that alone.
    """
    kinds = Counter(tensor.data_type for tensor in model.graph.initializer)
    most = [kind for kind, _ in kinds.most_common(1)]
    return "bf16" if most == [BY_NAME["bf16"].onnx] else "f32"


def torch(model: Any, inputs: Mapping[str, Array], threads: int) -> Run:
    """PyTorch reads no ONNX; the package onnx2torch makes a module of it."""
    library, converter = import_module("torch"), import_module("onnx2torch")
    network = converter.convert(model).eval()
    library.set_num_threads(threads)
    tensors = [library.from_numpy(inputs[value.name]) for value in model.graph.input]
    names = [value.name for value in model.graph.output]

    def run() -> Outputs:
        with library.inference_mode():
            found = network(*tensors)
        values = found if isinstance(found, list | tuple) else [found]
        return {name: value.numpy() for name, value in zip(names, values, strict=True)}

    return run


PEERS = {
    peer.name: peer
    for peer in (
        Peer("onnxruntime", "onnxruntime", onnxruntime),
        Peer("openvino", "openvino", openvino, many=True),
        Peer("torch", "torch onnx2torch", torch),
    )
}
"""All of them, by name."""


def ready(peer: Peer, model: Any, inputs: Mapping[str, Array], threads: int) -> Run:
    """A model loaded by a peer; says what to install when it is not there, and what it refuses."""
    try:
        return peer.load(model, inputs, threads)
    except ImportError as error:
        raise PopgraphError(
            f"{peer.name} cannot be imported: {error}", hint=f"pip install {peer.install}"
        ) from error
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnsupportedError(f"{peer.name} does not take this model: {reason}") from error
