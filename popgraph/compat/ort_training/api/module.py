"""`Module`: runs training and eval models with the parameters of a state."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import ModelProto

from popgraph.backends.registry import DEFAULT
from popgraph.compat.ort_training.api.checkpoint_state import (
    CheckpointState,
    assign,
    contents_of,
    value_of,
)
from popgraph.compat.ort_training.checkpoint_file import Tensor
from popgraph.compat.ort_training.errors import (
    MissingFile,
    UnknownValue,
    WrongCall,
    WrongType,
    running,
)
from popgraph.compat.ort_training.graphs import has_value, keep_only
from popgraph.compat.ort_training.training_model import (
    ReadModel,
    gradient_name,
    is_accumulation,
    read_training_model,
)
from popgraph.compiler import BuildRequest, load
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.ort.feeds import Feeds
from popgraph.ort.providers import usable_cpus
from popgraph.ort.values import STRING, NodeArg, OrtValue, type_text
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import GRADIENT, Options, Training
from popgraph.runner import Runner
from popgraph.start import compile
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_ONNX
from popgraph.support.names import closest
from popgraph.support.writing import write_file

Outputs: TypeAlias = Any
"""One array or a tuple of arrays; `OrtValue` if all inputs are."""


class Module:
    """
    A model that is trained: `loss = module(x, labels)` also accumulates gradients in the state.

    `module.train()` and `module.eval()` select the training or the eval model.
    """

    training: bool

    def __init__(
        self,
        train_model_uri: str | os.PathLike[str],
        state: CheckpointState,
        eval_model_uri: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        session_options: Any = None,
    ) -> None:
        self.training = True
        self._contents = contents_of(state)
        _check_device(device)
        self._threads = threads_of(session_options)
        self._train = _Model(train_model_uri, self._contents.tensors)
        self._trained = read_training_model(self._train.model, self._train.where)
        self._train.take(self._trained.model, self._trained.outputs)
        self._eval = None
        if eval_model_uri is not None:
            self._eval = _Model(eval_model_uri, self._contents.tensors)
        self._check_state()
        self._gradients = _Gradients(self._trained, self._threads)
        self._starts_again = True
        for one in self._contents.tensors.values():
            if one.requires_grad:
                one.grad = np.zeros(one.shape, one.dtype)

    def __call__(self, *user_inputs: Any) -> Outputs:
        """The outputs of the training or eval model, the loss first."""
        found: list[Any]
        found = self._step(user_inputs) if self.training else self._evaluate(user_inputs)
        if user_inputs and all(type(one).__name__ == "OrtValue" for one in user_inputs):
            found = [OrtValue(value) for value in found]
        return found[0] if len(found) == 1 else tuple(found)

    def train(self, mode: bool = True) -> Module:
        """Selects the training model, or the eval model if `mode` is false."""
        self.training = mode
        return self

    def eval(self) -> Module:
        """Selects the eval model."""
        return self.train(False)

    def lazy_reset_grad(self) -> None:
        """Lets the next training call start its gradients again instead of adding to them."""
        self._starts_again = True

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """The number of elements of the parameters."""
        return sum(one.size for one in self._tensors(trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = False) -> OrtValue:
        """A copy of the parameters as one vector."""
        parts = [value_of(one).ravel() for one in self._tensors(trainable_only)]
        return OrtValue(np.concatenate(parts) if parts else np.zeros(0, np.float32))

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Sets the parameters from a vector of `get_contiguous_parameters`."""
        tensors = self._tensors(trainable_only)
        vector = buffer.numpy() if hasattr(buffer, "numpy") else buffer
        if not isinstance(vector, np.ndarray):
            raise WrongType(
                f"the buffer is a {type(buffer).__name__}, not an OrtValue or an array",
                "copy_buffer_to_parameters",
                "module.get_contiguous_parameters()",
            )
        size = sum(one.size for one in tensors)
        if vector.shape != (size,):
            raise WrongCall(
                f"Parameters buffer size incorrect. Expected: [{size}], "
                f"Actual: {list(vector.shape)}",
                f"copy_buffer_to_parameters(trainable_only={trainable_only})",
                "pass the same trainable_only to get_contiguous_parameters",
            )
        start = 0
        for one in tensors:
            assign(one, vector[start : start + one.size].reshape(one.shape))
            start += one.size

    def export_model_for_inferencing(
        self, inference_model_uri: str | os.PathLike[str], graph_output_names: Sequence[str]
    ) -> None:
        """Writes an ONNX model that computes these values, with the current parameters."""
        if self._eval is None:
            raise _no_eval_model("export_model_for_inferencing")
        model = ModelProto()
        model.CopyFrom(self._eval.model)
        for name in graph_output_names:
            if not has_value(model, name):
                known = [output for node in model.graph.node for output in node.output]
                close = closest(name, known)
                raise UnknownValue(
                    f"the eval model has no value {name!r}",
                    "export_model_for_inferencing",
                    f"did you mean {close!r}?" if close else "name outputs of the original model",
                )
        keep_only(model, graph_output_names)
        kept = [one for one in model.graph.input if one.name not in self._contents.tensors]
        used = [one.name for one in model.graph.input if one.name in self._contents.tensors]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(value_of(self._contents.tensors[name]), name)
            for name in used
        )
        write_file(Path(inference_model_uri), [model.SerializeToString()])

    def input_names(self) -> list[str]:
        """The inputs of a call, for the training or the eval model."""
        return [one.name for one in self._model("input_names").inputs]

    def output_names(self) -> list[str]:
        """The outputs of a call, for the training or the eval model."""
        return list(self._model("output_names").outputs)

    def _model(self, caller: str) -> _Model:
        if self.training:
            return self._train
        if self._eval is None:
            raise _no_eval_model(caller)
        return self._eval

    def _step(self, given: Sequence[Any]) -> list[Array]:
        feed = self._train.feed(given)
        found = self._gradients.run(feed, self._contents.train_steps)
        self._contents.train_steps += 1
        for name in self._trained.trained:
            tensor, gradient = self._contents.tensors[name], found[self._gradients.names[name]]
            if self._starts_again or tensor.grad is None:
                tensor.grad = gradient
            else:
                np.add(tensor.grad, gradient, out=tensor.grad)
        self._starts_again = False
        return [found[name] for name in self._trained.outputs]

    def _evaluate(self, given: Sequence[Any]) -> list[Array]:
        model = self._model("module.eval()")
        feed = model.feed(given)
        with running():
            found = model.runner(self._threads)(feed)
        return [found[name] for name in model.outputs]

    def _tensors(self, trainable_only: bool) -> list[Tensor]:
        """The parameters in the order of the training model's inputs."""
        found = [
            self._contents.tensors[name]
            for name in self._train.order
            if name in self._contents.tensors
        ]
        return [one for one in found if one.requires_grad or not trainable_only]

    def _check_state(self) -> None:
        """WrongCall if the state is of another model."""
        tensors = self._contents.tensors
        trained = {name for name, one in tensors.items() if one.requires_grad}
        different = sorted(trained ^ set(self._trained.trained))
        if different:
            raise WrongCall(
                f"the checkpoint and the training model differ: {different[0]!r} is trained by "
                "only one of them",
                self._train.where,
                "load the checkpoint that was generated with this training model",
            )


class _Model:
    """A model whose parameters are inputs: its other inputs, its outputs, and its program."""

    def __init__(self, uri: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
        self.where, self.model = str(uri), read_model(uri)
        self.order = [one.name for one in self.model.graph.input]
        self._tensors = tensors
        given = {one.name for one in self.model.graph.initializer}
        self.inputs = [
            _argument(one)
            for one in self.model.graph.input
            if not (one.name in tensors or one.name in given or is_accumulation(one.name))
        ]
        self._feeds = Feeds(self.inputs, ())
        self.take(self.model, [one.name for one in self.model.graph.output])
        self._runner: Runner | None = None

    def take(self, model: ModelProto, outputs: Sequence[str]) -> None:
        """Sets the model that calls run, which may read some of the inputs only."""
        self.outputs = tuple(outputs)
        self._read = {one.name for one in model.graph.input}
        self._parameters = [
            name for name in self.order if name in self._tensors.keys() & self._read
        ]

    def feed(self, given: Sequence[Any]) -> dict[str, Array]:
        """The inputs of a call with the parameters; WrongCall if they do not fit."""
        names = [one.name for one in self.inputs]
        if len(given) != len(names):
            raise WrongCall(
                f"{len(given)} inputs for a model of {len(names)}",
                self.where,
                f"module({', '.join(names)})",
            )
        arrays = [one.numpy() if hasattr(one, "numpy") else one for one in given]
        with running():
            feed = self._feeds.converted(dict(zip(names, arrays, strict=True)))
        parameters = {name: value_of(self._tensors[name]) for name in self._parameters}
        return {name: one for name, one in feed.items() if name in self._read} | parameters

    def runner(self, threads: int) -> Runner:
        """The compiled model, built at the first call."""
        if self._runner is None:
            self._runner = compile(self.model.SerializeToString(), threads=threads, quick=False)
        return self._runner


class _Gradients:
    """The compiled forward and backward pass of a training model."""

    def __init__(self, read: ReadModel, threads: int) -> None:
        self._read, self._threads = read, threads
        self._runner: Runner | None = None
        self._is_seeded = False
        self.names = {
            name: GRADIENT + name if read.loss else gradient_name(name) for name in read.trained
        }
        """The outputs with gradients, by parameter."""

    def run(self, feed: Mapping[str, Array], steps: int) -> dict[str, Array]:
        """Outputs and gradients of one step; `steps` have run before."""
        read = self._read
        if not read.loss and any(one.name == SEED for one in read.model.graph.input):
            feed = {**feed, SEED: np.array([0, steps], np.int64)}
        with running():
            if self._runner is None:
                self._runner = self._built()
            if read.loss and not self._is_seeded:
                self._seed(self._runner, feed, steps)
            return self._runner(feed)

    def _built(self) -> Runner:
        content = self._read.model.SerializeToString()
        if not self._read.loss:
            return compile(content, threads=self._threads, quick=False)
        module, compilation = load(content)
        # Other weights are constants of the model, which training must not change.
        frozen = tuple(weights_by_name(model_of(module).graph))
        training = Training(self._read.loss, SGD(), self._read.trained, frozen=frozen)
        options = Options(training=training)
        return BuildRequest(module, compilation, options, DEFAULT, self._threads).runner()

    def _seed(self, runner: Runner, feed: Mapping[str, Array], steps: int) -> None:
        """Continues the random numbers of Dropout after `steps` steps."""
        program = runner.program(feed)
        if SEED in program.variables and steps:
            program.write(SEED, np.array([0, steps], np.int64))
        self._is_seeded = True


def read_model(uri: str | os.PathLike[str]) -> ModelProto:
    """The model of an artifact; MissingFile or WrongCall if it cannot be read."""
    path = Path(uri)
    if not path.is_file():
        raise MissingFile(f"there is no model {str(path)!r}", "artifacts", "check the path")
    try:
        return onnx.load(path)
    except Exception as error:  # protobuf's DecodeError, and those of external data
        raise WrongCall(
            f"the model cannot be read: {error}", str(path), "generate the artifacts again"
        ) from error


def threads_of(session_options: Any) -> int:
    """The number of threads; all CPUs of the process by default, as in onnxruntime."""
    threads = int(getattr(session_options, "intra_op_num_threads", 0) or 0)
    return threads if threads > 0 else usable_cpus()


def _check_device(device: str) -> None:
    if str(device).partition(":")[0] != "cpu":
        raise WrongCall(
            f"Unsupported device type: {device}", "Module", "device='cpu': PopGraph uses the CPU"
        )


def _no_eval_model(caller: str) -> WrongCall:
    return WrongCall(
        "the module has no eval model",
        caller,
        "Module(train_model_uri, state, eval_model_uri)",
    )


def _argument(value: onnx.ValueInfoProto) -> NodeArg:
    """An input as onnxruntime describes it."""
    tensor = value.type.tensor_type
    name = "string" if tensor.elem_type == STRING else BY_ONNX[tensor.elem_type].name
    if not tensor.HasField("shape"):
        return NodeArg(value.name, type_text(name), [])
    shape: list[int | str | None] = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in tensor.shape.dim
    ]
    return NodeArg(value.name, type_text(name), shape, len(shape))
