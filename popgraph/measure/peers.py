"""Other runtimes as peers in benchmarks: onnxruntime, OpenVINO, PyTorch."""

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
    """Another runtime: how to install it, and how it loads a model."""

    name: str
    install: str
    load: Callable[[Any, Mapping[str, Array], int], Run]
    """From a ModelProto, its inputs and the number of threads to a function that runs it."""
    many: bool = False
    """Whether it computes in threads of its own even when limited to one."""


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
    # A tensor may have several names: look it up by the model's.
    named = [(value.name, compiled.output(value.name)) for value in model.graph.output]

    def run() -> Outputs:
        found = request.infer(inputs)
        return {name: found[output] for name, output in named}

    return run


def _precision(model: Any) -> str:
    """
    The precision for OpenVINO: bf16 if most weights are bf16.

    With the hint f16, it would also choose bf16 on machines that only support that.
    """
    kinds = Counter(tensor.data_type for tensor in model.graph.initializer)
    most = [kind for kind, _ in kinds.most_common(1)]
    return "bf16" if most == [BY_NAME["bf16"].onnx] else "f32"


def torch(model: Any, inputs: Mapping[str, Array], threads: int) -> Run:
    """Runs a model in PyTorch, converted by the package onnx2torch."""
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


def ready(peer: Peer, model: Any, inputs: Mapping[str, Array], threads: int) -> Run:
    """
    Loads a model in a peer; the error says what to install, or why the peer rejects the model.
    """
    try:
        return peer.load(model, inputs, threads)
    except ImportError as error:
        raise PopgraphError(
            f"{peer.name} cannot be imported: {error}", hint=f"pip install {peer.install}"
        ) from error
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnsupportedError(f"{peer.name} does not take this model: {reason}") from error
