"""PopART's sessions, `InferenceSession` and `TrainingSession`: they run a model step by step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.builder.opset.enums import AnchorReturnTypeId, DeviceType
from popgraph.builder.opset.exceptions import (
    as_popart_errors,
    popart_exception,
    popart_runtime_error,
    poplar_exception,
)
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.pgraph import load as load_text
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.to_graphcore.context import SEED
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import Options as CodeOptions
from popgraph.session.dataflow import DataFlow, InputShapeInfo
from popgraph.session.devices import DeviceInfo, DeviceManager
from popgraph.session.export import model_with_weights, weights_of
from popgraph.session.logger import getLogger
from popgraph.session.losses import AnyLoss, Loss, as_losses
from popgraph.session.model import SessionModel, Source, open_model
from popgraph.session.optimizer_of_rule import popart_optimizer
from popgraph.session.optimizers import Optimizer
from popgraph.session.options import SessionOptions
from popgraph.session.patterns import Patterns
from popgraph.session.program import Program, Request
from popgraph.session.step_io import PyWeightsIO, StepIO, Stream
from popgraph.session.weights import HostWeights
from popgraph.support.arrays import Array
from popgraph.support.index_checks import ERROR
from popgraph.support.poison import unwritten
from popgraph.support.writing import write_file
from popgraph.training.driver import Driver
from popgraph.training.task import Task, task_of


class Session:
    """
    What both kinds of session do: compile a model, move weights, run steps.

    Unlike an IPU, this machine has 64-bit numbers: tensors of DOUBLE and INT64 stay what they are,
    and so do their anchors. Inputs of INT32 and INT64 are taken for each other where they fit.
    """

    def __init__(
        self,
        module: ModuleOp,
        weights: WeightStore,
        losses: Sequence[str | Loss],
        rule: OptimizerSpec | None,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo | None,
        inputShapeInfo: InputShapeInfo | None,
        patterns: Patterns | None,
        userOptions: SessionOptions | None,
        name: str,
    ) -> None:
        self.name = name
        self._dataflow = dataFlow
        self._rule = rule
        self._options = SessionOptions() if userOptions is None else userOptions
        if not isinstance(self._options, SessionOptions):
            raise popart_exception(
                f"userOptions is {type(userOptions).__name__}, not SessionOptions",
                hint="options = SessionOptions(), then options.enableOutlining = False",
            )
        self._patterns = patterns or Patterns()
        self._device = deviceInfo or DeviceManager().createCpuDevice()
        self._executable: Executable | None = None
        self._sent = False
        self._checked = False
        self._options.check(training=self._training)
        self._patterns.check()
        with as_popart_errors():
            shapes = inputShapeInfo or InputShapeInfo()
            self._model = SessionModel(module, weights, shapes, losses)
            self._program = Program(self._model, self._request())
        self._weights = HostWeights(self._program.initial_values)

    @property
    def _training(self) -> bool:
        return self._rule is not None

    @property
    def _constant_weights(self) -> bool:
        return not self._training and self._options.constantWeights

    def _code(self) -> CodeOptions:
        code = self._options.compilation()
        if code.indices is None and self._device.backend == "reference":
            return replace(code, indices=ERROR)
        return code

    def _request(self) -> Request:
        return Request(
            anchors=tuple(self._dataflow.anchors()),
            optimizer=self._rule,
            variables=not self._constant_weights,
            disabled=self._patterns.disabled_passes(),
            code=self._code(),
        )

    # what was asked for

    @property
    def dataFlow(self) -> DataFlow:
        return self._dataflow

    @property
    def replicationFactor(self) -> int:
        return 1

    @property
    def accumulationFactor(self) -> int:
        return 1

    def getInfo(self, id: str) -> TensorInfo:
        """The element type and shape of any tensor."""
        if id not in self._program.infos:
            raise popart_exception(f"TensorId {id} does not exist")
        return self._program.infos[id]

    def _tensor_ids(self) -> list[str]:
        return sorted(self._program.infos)

    def initAnchorArrays(self) -> dict[str, Array]:
        """An array for every anchor, of the shape that a step fills."""
        arrays = {}
        for id, stream in self._program.outputs.items():
            shape = self._dataflow.anchor_shape(id, stream.shape)
            arrays[id] = unwritten(shape, stream.dtype.numpy)
        return arrays

    # getting ready

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compiles the model."""
        self._options.check_engine_options()
        self._device.attach()
        with as_popart_errors():
            self._executable = self._program.build(self._device.backend, self._device.threads)
        log = getLogger("session")
        log.info("Graph compiled")
        if loadEngine:
            log.info("Engine loaded")
        for id, array in self._program.streamed.items():
            self._executable.write(id, array)

    def loadEngineAndConnectStreams(self) -> None:
        self._prepared("no compiled engine: call prepareDevice first")

    def setDevice(self, deviceInfo: DeviceInfo) -> None:
        """Of old programs, which chose the device after the session was made."""
        self._device = deviceInfo

    def _prepared(self, message: str) -> Executable:
        if self._executable is None:
            raise popart_runtime_error(message)
        return self._executable

    def _prepared_for(self, call: str) -> Executable:
        return self._prepared(
            f"Devicex::prepare() must be called before Devicex::{call} is called."
        )

    # weights

    def weightsFromHost(self) -> None:
        """Sends the host's weights and optimizer state to the program."""
        self._weights.send(self._prepared_for("weightsFromHost()"))
        self._sent = True

    def weightsToHost(self) -> None:
        """Fetches the weights and optimizer state, for `readWeights` to hand out."""
        call = "weightsToHost(const std::map<TensorId, MutableVoidData> &)"
        self._weights.fetch(self._prepared_for(call))

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copies the weights that `weightsToHost` fetched into the user's arrays."""
        self._weights.read(weightsIo.weights)

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Takes new weights; `weightsFromHost` sends them."""
        self._refuse_if_constant("writeWeights")
        self._weights.write(weightsIo.weights)

    def weights(self) -> Mapping[str, Array]:
        """The weights and states that `weightsToHost` fetched, by name."""
        return self._weights.fetched()

    def resetHostWeights(
        self,
        modelProtoOrFilename: Source,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Takes the weights of another model; `weightsFromHost` sends them."""
        self._refuse_if_constant("resetHostWeights")
        self._weights.reset(
            weights_of(modelProtoOrFilename), ignoreWeightsInModelWithoutCorrespondingHostWeight
        )
        self._sent = False

    def _refuse_if_constant(self, call: str) -> None:
        if self._constant_weights:
            raise popart_runtime_error(
                f"Cannot call {call} when constantWeights is set. Set `constantWeights` to False "
                "in the `SessionOption`s when initialising the session to enable this behaviour."
            )

    def modelToHost(self, filename: str | Path) -> None:
        """Writes the model with its weights and optimizer state as they are now."""
        self.weightsToHost()
        if not self._constant_weights:
            self._weights.keep_fetched()
        with as_popart_errors():
            content = model_with_weights(self._model, self._weights.values())
            write_file(filename, [content])

    # running

    def run(self, stepio: Any, debugName: object = "", *rest: object) -> None:
        """One step: `batchesPerStep` times the model, inputs from and anchors to `stepio`."""
        if isinstance(stepio, int):  # the form with a program handle, of which there is one
            stepio = debugName
        executable = self._prepared("Session::run(...): prepareDevice must be called before run")
        if self._training and not self._sent and len(self._weights):
            raise popart_runtime_error(
                "Must call weightsFromHost before run as the model has initializers and the "
                "session has been created in training mode"
            )
        with as_popart_errors():
            if not self._checked:
                self._check(stepio)
            self._run(executable, stepio)

    def _check(self, stepio: StepIO) -> None:
        for id in stepio.offered_inputs():
            if id in self._program.inputs:
                continue
            if id in self._program.infos:
                raise popart_runtime_error(
                    f"The tensor '{id}' has been provided as one of the inputs to the stepIO, but "
                    "it is not registered as one of the inputs to the model. Please check this "
                    "tensor and your stepIO."
                )
            raise popart_runtime_error(
                f"Testing that the buffer provided by user for input Tensor {id} has the correct "
                f"number of elements, But there is no Tensor named {id} in the model."
            )
        if stepio.asserts:
            streams = {self._whole(one): str(self._dataflow.art(id)) for id, one in self._outputs}
            batches = self._dataflow.batchesPerStep()
            stepio.check(list(self._program.inputs.values()), streams, batches)
        self._checked = True

    @property
    def _outputs(self) -> list[tuple[str, Stream]]:
        return list(self._program.outputs.items())

    def _whole(self, stream: Stream) -> Stream:
        """All that a step returns of an anchor."""
        shape = self._dataflow.anchor_shape(stream.id, stream.shape)
        return Stream(stream.id, stream.dtype, shape)

    def _run(self, executable: Executable, stepio: StepIO) -> None:
        batches = self._dataflow.batchesPerStep()
        sums: dict[str, Array] = {}
        for batch in range(batches):
            results = self._step(executable, self._read(stepio))
            for id, stream in self._outputs:
                returned = self._dataflow.art(id)
                if returned.id() is AnchorReturnTypeId.Sum:
                    sums[id] = np.add(sums[id], results[id]) if id in sums else results[id]
                elif returned.keeps(batch, batches):
                    stepio.write(stream, results[id])
        for id, value in sums.items():
            stepio.write(self._program.outputs[id], value)

    def _step(self, executable: Executable, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One batch."""
        return executable.run(inputs)

    def _read(self, stepio: StepIO) -> dict[str, Array]:
        """The next batch; what the program does not look at need not be there."""
        return {
            id: np.zeros(stream.shape, stream.dtype.numpy)
            if id in self._program.unused_inputs
            else stepio.read(stream)
            for id, stream in self._program.inputs.items()
        }

    # randomness

    def setRandomSeed(self, seedValue: int) -> None:
        """
        The seed that steps draw from, from its first step on. Without it, a program has seed 0.

        What `getRandomSeed` gave continues where that was: its high bits count the steps.
        """
        executable = self._prepared_for("setRandomSeedFromHost(uint64_t)")
        if not self._program.uses_seed:
            warnings.warn("the model has no random operation to seed", stacklevel=2)
            return
        step, seed = divmod(seedValue, 2**64)
        if not 0 <= step < 2**63:
            raise popart_exception(f"a seed is a number from 0 to 2^64 - 1, not {seedValue}")
        executable.write(SEED, np.array([seed, step], np.uint64).astype(np.int64))

    def getRandomSeed(self) -> int:
        """The seed, plus 2^64 times the number of steps taken with it."""
        executable = self._prepared_for("getRandomSeedToHost()")
        if not self._program.uses_seed:
            return 0
        seed, step = (int(number) for number in executable.read(SEED).astype(np.uint64))
        return seed + step * 2**64

    # reports

    def _report(self) -> str:
        self._prepared("Session must have been prepared before a report can be fetched")
        if self._device.type is DeviceType.Cpu:
            raise poplar_exception("Profiling is disabled for current device type.")
        lines = [f"{self.name}: {self._dataflow.batchesPerStep()} batches per step"]
        lines += [f"  input {s.id}: {s.dtype.name}{list(s.shape)}" for s in self._inputs]
        lines += [f"  output {s.id}: {s.dtype.name}{list(s.shape)}" for _, s in self._outputs]
        return "\n".join(lines)

    @property
    def _inputs(self) -> list[Stream]:
        return list(self._program.inputs.values())

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """What the compiled program takes and gives."""
        return self._report()

    def getReport(self) -> str:
        return self._report()

    def getGraphReport(self, useCbor: bool = False) -> str:
        return self._report()

    def getExecutionReport(self, useCbor: bool = False) -> str:
        return self._report()

    def getSerializedGraph(self) -> bytes:
        return self._report().encode()

    def getCycleCount(self, id: str = "") -> int:
        raise popart_runtime_error(
            "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order to "
            "measure cycle count",
            hint="there is no hardware counter of cycles here; time the calls of run instead",
        )


class InferenceSession(Session):
    """
    Runs a model: `InferenceSession(model, DataFlow(1, ["y"]))`.

    `model` is a file, its bytes or a Builder. The device may be left out. `losses` are losses of
    older programs, to be evaluated.
    """

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow | None = None,
        deviceInfo: DeviceInfo | None = None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
        *,
        dataFeed: DataFlow | None = None,
        passes: Patterns | None = None,
        losses: AnyLoss | None = None,
    ) -> None:
        flow = _one_of("dataFlow", dataFlow, dataFeed)
        if not flow.nAnchors():
            raise popart_exception("User must specify an anchor tensor when doing inference.")
        super().__init__(
            *open_model(fnModel),
            as_losses(losses),
            None,
            flow,
            deviceInfo,
            inputShapeInfo,
            patterns or passes,
            userOptions,
            name,
        )

    def getAllTensorIds(self) -> list[str]:
        return self._tensor_ids()


class TrainingSession(Session):
    """
    Trains a model: `TrainingSession(model, DataFlow(1, [loss]), loss, ConstSGD(0.1))`.

    `loss` is the id of a tensor of one element; older programs give `losses`, a list. A `.pgraph`
    file says both in its `train` section: `TrainingSession("net.pgraph", DataFlow(1, ["loss"]))`;
    its schedule, if it has one, sets the learning rate of every batch.
    """

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow | None = None,
        loss: AnyLoss | None = None,
        optimizer: Optimizer | None = None,
        deviceInfo: DeviceInfo | None = None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
        *,
        dataFeed: DataFlow | None = None,
        passes: Patterns | None = None,
        losses: AnyLoss | None = None,
    ) -> None:
        flow = _one_of("dataFlow", dataFlow, dataFeed)
        wanted = as_losses(loss if loss is not None else losses)
        task = None if wanted else _task_of_text(fnModel)
        schedule = None
        rule = None if optimizer is None else optimizer.spec()
        if task is not None:
            wanted = [task.loss]
            if rule is None and task.rule is not None:
                rule, schedule = task.rule, task.schedule
                with as_popart_errors():
                    optimizer = popart_optimizer(rule)
        if not wanted:
            raise TypeError("TrainingSession() needs a loss")
        if rule is None or optimizer is None:
            raise TypeError("TrainingSession() needs an optimizer")
        self._optimizer = self._next = optimizer
        super().__init__(
            *(open_model(fnModel) if task is None else (task.module, task.weights)),
            wanted,
            rule,
            flow,
            deviceInfo,
            inputShapeInfo,
            patterns or passes,
            userOptions,
            name,
        )
        self._driver = Driver(self._program.scalars, rule, schedule)

    def getTensorIds(self) -> list[str]:
        return self._tensor_ids()

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Takes new values of what is not constant, at once."""
        executable = self._prepared_for("optimizerFromHost()")
        self.updateOptimizer(optimizer)
        with as_popart_errors():
            self._driver.send(executable, self._driver.rule)

    def updateOptimizer(self, optimizer: Optimizer) -> None:
        """Of old programs: the values that `optimizerFromHost` will send."""
        self._optimizer.validate_replacement(optimizer)
        self._next = optimizer
        self._driver.rule = optimizer.spec()

    def optimizerFromHost(self) -> None:
        self.updateOptimizerFromHost(self._next)

    def _step(self, executable: Executable, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One batch, at the learning rate that the schedule wants now."""
        return self._driver.step(executable, inputs)


def _task_of_text(source: Source) -> Task | None:
    """How a `.pgraph` file says that it is trained; other models say nothing."""
    if not (isinstance(source, str | Path) and Path(source).suffix == ".pgraph"):
        return None
    with as_popart_errors():
        task = task_of(load_text(source))
        if task is None:
            raise popart_exception(
                "this text does not say how it is trained",
                str(source),
                "`train (labels: i32[N]) { loss = nll(y, labels) }`, or give loss and optimizer",
            )
        return task


def _one_of(name: str, new: DataFlow | None, old: DataFlow | None) -> DataFlow:
    found = new or old
    if found is None:
        raise TypeError(f"the argument {name} is missing")
    return found
