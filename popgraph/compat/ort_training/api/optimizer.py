"""`Optimizer`: runs an optimizer model on the parameters and gradients of a module's state."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto

from popgraph.compat.ort_training.api.checkpoint_state import value_of
from popgraph.compat.ort_training.api.module import Module, read_model
from popgraph.compat.ort_training.checkpoint_file import Contents, Tensor
from popgraph.compat.ort_training.errors import WrongCall, WrongType, running
from popgraph.compat.ort_training.onnxblock.optim import (
    LEARNING_RATE,
    MOMENTS,
    STEP,
    UPDATED,
    moment_name,
)
from popgraph.compat.ort_training.training_model import gradient_name
from popgraph.runner import Runner
from popgraph.start import compile
from popgraph.support.arrays import Array

DEFAULT_RATE = 0.001


class Optimizer:
    """Updates the trained parameters of a module: `optimizer.step()`."""

    def __init__(self, optimizer_uri: str | os.PathLike[str], module: Module) -> None:
        if not isinstance(module, Module):
            raise WrongType(
                f"the optimizer's module is a {type(module).__name__}, not a Module",
                "Optimizer",
                "Optimizer(optimizer_uri, module)",
            )
        self._where = str(optimizer_uri)
        model = read_model(optimizer_uri)
        self._contents: Contents = module._contents
        self._inputs = {one.name for one in model.graph.input}
        self._check(model)
        self._content, self._threads = model.SerializeToString(), module._threads
        self._runner: Runner | None = None
        self._rate = DEFAULT_RATE
        self._moments = [
            one
            for one in MOMENTS
            if any(moment_name(name, one) in self._inputs for name in self._tensors)
        ]
        for tensor in self._tensors.values():
            if len(tensor.moments) != len(self._moments):
                tensor.moments = [np.zeros(tensor.shape, tensor.dtype) for _ in self._moments]

    @property
    def _tensors(self) -> dict[str, Tensor]:
        """The trained parameters by name."""
        return {name: one for name, one in self._contents.tensors.items() if one.requires_grad}

    def step(self) -> None:
        """Updates parameters and states in place, by the accumulated gradients."""
        feed = self._feed()
        with running():
            if self._runner is None:
                self._runner = compile(self._content, threads=self._threads, quick=False)
            pairs = self._runner.donations.items()
            own = [name for name, output in pairs if output == name + UPDATED]
            found = self._runner(feed, donate=own)
        self._contents.updates += 1
        for name, tensor in self._tensors.items():
            tensor.data = found[name + UPDATED]
            tensor.grad = found.get(gradient_name(name) + UPDATED, tensor.grad)
            tensor.moments = [found[moment_name(name, one) + UPDATED] for one in self._moments]

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the learning rate of the following steps."""
        rate = float(learning_rate)
        if not np.isfinite(rate):
            raise WrongCall(
                f"the learning rate is {rate}", "set_learning_rate", "pass a finite number"
            )
        self._rate = rate

    def get_learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._rate

    def _feed(self) -> Mapping[str, Array]:
        """The inputs of a step."""
        feed: dict[str, Array] = {LEARNING_RATE: np.array([self._rate], np.float32)}
        if STEP in self._inputs:
            feed[STEP] = np.array([self._contents.updates + 1], np.int64)
        for name, tensor in self._tensors.items():
            assert tensor.grad is not None, "a module gives trained parameters a gradient"
            feed[name], feed[gradient_name(name)] = value_of(tensor), tensor.grad
            for one, array in zip(self._moments, tensor.moments, strict=True):
                feed[moment_name(name, one)] = array
        return feed

    def _check(self, model: ModelProto) -> None:
        """WrongCall if the model is foreign, or of other parameters."""
        if any(node.domain == "com.microsoft" for node in model.graph.node):
            raise WrongCall(
                "onnxruntime-training has written this optimizer model; its operators are its own",
                self._where,
                "generate the artifacts again, with popgraph.compat.ort_training.artifacts",
            )
        updated = {one.name.removesuffix(UPDATED) for one in model.graph.output}
        own = {name for name in self._tensors if gradient_name(name) in self._inputs}
        missing = sorted(set(self._tensors) - own) or sorted(
            name for name in own if name not in updated
        )
        others = {
            name
            for name in updated
            if gradient_name(name) in self._inputs and name not in self._tensors
        }
        for name in [*missing, *sorted(others)]:
            raise WrongCall(
                f"the optimizer model and the module train different parameters: {name!r}",
                self._where,
                "load the optimizer model that was generated with this training model",
            )
