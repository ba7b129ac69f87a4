"""The programs of a training: its steps, and the same model for validation and prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.background import Backlog
from popgraph.compiler import BuildRequest
from popgraph.dialects import element_types
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.open_model import Call
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.given import check_names, fitted
from popgraph.support.shapes import Shape
from popgraph.training.driver import Driver
from popgraph.training.inference_form import to_inference
from popgraph.training.samples import Batch
from popgraph.training.task import Task


@dataclass(frozen=True)
class Build:
    """How programs are made."""

    backend: str = "c"
    threads: int = 1
    indices: str | None = None
    straight_through: bool = False
    values: dict[str, Array] = field(default_factory=dict)
    """The inputs that decide structure: the same in all steps."""
    backlog: Backlog | None = None
    """Where quick programs wait for their tuned ones; None: programs are tuned at once."""

    def request(self, task: Task, shapes: Mapping[str, Shape] | None = None) -> BuildRequest:
        """What is to be built for steps on inputs of these shapes; some always have `values`."""
        options = Options(
            training=task.training,
            indices=self.indices,
            straight_through=self.straight_through,
        )
        request = self.of(task.module, Compilation(task.weights), options)
        fixed = {name: array.shape for name, array in self.values.items()}
        return request.specialised(Call({**(shapes or {}), **fixed}, self.values))

    def of(self, module: ModuleOp, compilation: Compilation, options: Options) -> BuildRequest:
        """What is to be built of a module."""
        return BuildRequest(
            module, compilation, options, self.backend, self.threads, backlog=self.backlog
        )


class Inputs:
    """The inputs of a model: what of a batch it takes, in the element types that it wants."""

    def __init__(self, module: ModuleOp, values: Mapping[str, Array]) -> None:
        types = input_types(module)
        self.dtypes: dict[str, DType] = {
            name: element_types.from_ir(type_.element_type)  # type: ignore[attr-defined]
            for name, type_ in types.items()
            if name not in values
        }
        self.converted: dict[str, tuple[object, DType]] = {}
        """The inputs whose data are of another element type."""

    def of(self, batch: Batch, *, only: bool = False) -> Batch:
        """The inputs in their element types; if `only`, a batch may hold more than these."""
        given = {name: batch[name] for name in self.dtypes if name in batch} if only else batch
        check_names(given, self.dtypes, "the data")
        for name, dtype in self.dtypes.items():
            if given[name].dtype != dtype.numpy:
                self.converted[name] = given[name].dtype, dtype
        return {name: fitted(name, given[name], dtype) for name, dtype in self.dtypes.items()}


class Steps:
    """Steps of training: a program for each shape of a batch, which share their variables."""

    def __init__(self, task: Task, build: Build, first: Batch) -> None:
        self.inputs = Inputs(task.module, build.values)
        given = self.inputs.of(first)  # What does not fit is said before anything is compiled.
        self._runner = build.request(task).runner()
        self.executable = self._program(given)
        self.driver = Driver.of(task, self.executable)

    def _program(self, inputs: Batch) -> Executable:
        return self._runner.program(inputs)

    def run(self, batch: Batch) -> dict[str, Array]:
        """One step; its outputs."""
        inputs = self.inputs.of(batch)
        self.executable = self._program(inputs)
        taken = {name: inputs[name] for name in self.executable.inputs}
        return self.driver.step(self.executable, taken)

    def read(self) -> dict[str, Array]:
        """All that steps change: weights, the optimizer's state, the state of random numbers."""
        return {name: self.executable.read(name) for name in self.executable.variables}

    def write(self, values: Mapping[str, Array]) -> None:
        for name, value in values.items():
            self.executable.write(name, value)

    def weights(self, module: ModuleOp) -> dict[str, Array]:
        """The values of a model's initializers that steps change."""
        names = weights_by_name(model_of(module).graph)
        return {
            name: self.executable.read(name) for name in names if name in self.executable.variables
        }


class Inference:
    """A model as it is used, run with weights that training has changed meanwhile."""

    def __init__(self, module: ModuleOp, weights: WeightStore, build: Build) -> None:
        module = module.clone()
        to_inference(module)
        self.inputs = Inputs(module, build.values)
        self._runner = _runner(module, weights, build)
        self._weights: Mapping[str, Array] = {}

    def take(self, weights: Mapping[str, Array]) -> None:
        """The weights with which batches are computed from now on."""
        self._weights = weights

    def run(self, batch: Batch) -> dict[str, Array]:
        inputs = self.inputs.of(batch, only=True)
        executable = self._runner.program(inputs)
        for name, value in self._weights.items():
            if name in executable.variables:
                executable.write(name, value)
        return executable.run({name: inputs[name] for name in executable.inputs})


def _runner(module: ModuleOp, weights: WeightStore, build: Build) -> Runner:
    options = Options(variables=True, indices=build.indices)
    request = build.of(module, Compilation(WeightStore(weights)), options)
    if build.values:
        shapes = {name: value.shape for name, value in build.values.items()}
        request = request.specialised(Call(shapes, build.values))
    return request.runner()
