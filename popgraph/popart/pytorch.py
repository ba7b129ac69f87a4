"""PyTorch modules in PopART programs: `PytorchNetWriter`, and sessions of modules."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from popgraph.popart.api.dataflow import AnchorReturnType, DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.graph_transformer import GraphTransformer
from popgraph.popart.api.losses import IdentityLoss, L1Loss, Loss, NllLoss
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.optimizers import SGD
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_io import PyStepIO
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.eras import sessions
from popgraph.popart.eras.era import era_named
from popgraph.popart.net_writer import NetWriter
from popgraph.popart.sessions.session import Session
from popgraph.support.arrays import Array
from popgraph.support.writing import write_file

torch: Any = import_module("torch")

Batch = dict[str, Array]

OPSET = 9
"""PopART's version of ai.onnx."""


def conv3x3(in_planes: int, out_planes: int, stride: int = 1) -> Any:
    """A 3x3 convolution that preserves the spatial size, without bias."""
    return torch.nn.Conv2d(in_planes, out_planes, 3, stride=stride, padding=1, bias=False)


class PytorchNetWriter(NetWriter):
    """
    `PytorchNetWriter(inNames, outNames, losses, optimizer, dataFeed, inputShapeInfo, module,
    samplesPerBatch)`; without losses, the only output of the module is the loss.

    The module takes a list of inputs. `evaluate` requires `samplesPerBatch`.
    """

    _NAMES: ClassVar[tuple[str, ...]] = (*NetWriter._NAMES, "module", "samplesPerBatch")
    module: Any
    samplesPerBatch: int | None

    def getTorchOptimizer(self) -> Any:
        """The equivalent PyTorch optimizer."""
        if not isinstance(self.optimizer, SGD):
            raise RuntimeError("unrecognised optimizer")
        values = (
            self.optimizer.learningRates(),
            self.optimizer.weightDecays(),
            self.optimizer.momentums(),
        )
        rate, decay, momentum = (one.getDefault().val() for one in values)
        parameters = self.module.parameters()
        return torch.optim.SGD(parameters, lr=rate, weight_decay=decay, momentum=momentum)

    def getTorchLossTarget(self, streamMap: Mapping[str, Array], outMap: Mapping[str, Any]) -> Any:
        """The sum of the losses, computed by PyTorch."""
        return sum(_value(loss, streamMap, outMap) for loss in self.losses)

    def saveModel(self, fnModel: str) -> None:
        print(f"Writing ONNX model to protobuf file {fnModel}")
        self.module.eval()
        infos = [self.inputShapeInfo.get(name) for name in self.inNames]
        ones = [
            _tensor(np.ones(info.shape(), info.data_type_lcase()), labels=not self.losses)
            for info in infos
        ]
        torch.onnx.export(
            self.module,
            (ones,),
            fnModel,
            input_names=self.inNames,
            output_names=self.outNames,
            opset_version=OPSET,
            dynamo=False,
        )
        if any(one.dtype == torch.int64 for one in ones):
            transformer = GraphTransformer(fnModel)
            transformer.convertINT64ToINT32()
            transformer.convertAllFixedPointInitializersToConstants()
            write_file(fnModel, [transformer.getModelProto()])

    def train(self, inMap: Mapping[str, Array]) -> list[dict[str, Any]]:
        """Trains one step, and returns the parameters after each batch."""
        optimizer = self.getTorchOptimizer()
        self.module.train()
        found = []
        for batch in self._batches(inMap):
            optimizer.zero_grad()
            outputs = self._outputs(batch)
            self._loss(batch, outputs).backward()
            optimizer.step()
            found.append({name: one.data.clone() for name, one in self.module.named_parameters()})
        return found

    def evaluate(self, inMap: Mapping[str, Array]) -> list[list[float]]:
        """The losses of each sample, batch by batch."""
        self.module.eval()
        return [
            [
                self._loss(sample, self._outputs(sample)).item()
                for sample in _samples(batch, self.samplesPerBatch)
            ]
            for batch in self._batches(inMap)
        ]

    def infer(self, inMap: Mapping[str, Array]) -> dict[str, list[Array]]:
        """The outputs of each batch."""
        self.module.eval()
        found: dict[str, list[Array]] = {name: [] for name in self.outNames}
        for batch in self._batches(inMap):
            for name, value in self._outputs(batch).items():
                found[name].append(value.detach().numpy())
        return found

    def _batches(self, inMap: Mapping[str, Array]) -> Iterator[Batch]:
        """
        The batches of a step, split along the leading axis, or in chunks of `batchSize` samples.
        """
        count = self.dataFlow.batchesPerStep()
        size = getattr(self.dataFlow, "batchSize", lambda: 1)()
        for at in range(count):
            if size > 1:
                yield {name: array[at * size : (at + 1) * size] for name, array in inMap.items()}
            else:
                yield {name: array[at] if count > 1 else array for name, array in inMap.items()}

    def _outputs(self, batch: Batch) -> dict[str, Any]:
        inputs = [_tensor(batch[name], labels=not self.losses) for name in self.inNames]
        made = self.module(inputs)
        return dict(zip(self.outNames, [made] if len(self.outNames) == 1 else made, strict=True))

    def _loss(self, batch: Batch, outputs: Mapping[str, Any]) -> Any:
        if self.losses:
            return self.getTorchLossTarget(batch, outputs)
        if len(outputs) != 1:
            raise RuntimeError("Expecting single scalar loss")
        return next(iter(outputs.values()))


def _value(loss: Any, streams: Mapping[str, Array], outputs: Mapping[str, Any]) -> Any:
    if isinstance(loss, NllLoss):
        labels = torch.as_tensor(np.asarray(streams[loss.labelTensorId()], np.int64))
        logarithms = torch.log(outputs[loss.probsTensorId()])
        return torch.nn.functional.nll_loss(logarithms, labels, reduction="sum")
    if isinstance(loss, L1Loss):
        return loss.getLambda() * torch.norm(outputs[loss.getInputId()], 1)
    raise RuntimeError("unrecognised loss, cannot get equivalent Torch version")


def _tensor(array: Array, labels: bool) -> Any:
    """Converts an array to a tensor: labels to int64, everything else to float32."""
    if labels and array.dtype == np.int32:
        return torch.as_tensor(array.astype(np.int64))
    return torch.as_tensor(array if labels else array.astype(np.float32))


def _samples(batch: Batch, count: int | None) -> Sequence[Batch]:
    size = count or len(next(iter(batch.values())))
    return [{name: array[at : at + 1] for name, array in batch.items()} for at in range(size)]


_TYPES = {
    "torch.DoubleTensor": "FLOAT",
    "torch.FloatTensor": "FLOAT",
    "torch.HalfTensor": "FLOAT16",
    "torch.LongTensor": "INT32",
    "torch.IntTensor": "INT32",
    "torch.ShortTensor": "INT16",
    "torch.CharTensor": "INT8",
}


class _ModuleNetwork(Session):
    """A session of a module, with tensors `input_i`, `output_i`, `target_i` and `loss_i`."""

    ERA = era_named("2020-05")

    _mode: Any
    """The mode in which the module is exported."""

    def _of_module(
        self,
        torchModel: Any,
        inputs: Any,
        targets: Any,
        losses: Any,
        deviceInfo: DeviceInfo,
        batch_size: int = 1,
        batches_per_step: int = 1,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        passes: Patterns | None = None,
    ) -> dict[str, Any]:
        """
        The arguments of a session of the module; `inputs` and `targets` hold all batches of a step.
        """
        self._torch_batch, self._torch_batches = batch_size, batches_per_step
        given = [self._first(one) for one in _several(inputs)]
        wanted = [self._first(one) for one in _several(targets)]
        outputs = _several(torchModel(*given))
        pairs = list(zip(range(len(outputs)), wanted, strict=False))
        self._torch_names = [
            *(f"input_{at}" for at in range(len(given))),
            *(f"target_{at}" for at, _ in pairs),
        ]
        kinds = ("target", "output", "loss")
        anchored = [f"{kind}_{at}" for at, _ in pairs for kind in kinds]
        returned = AnchorReturnType("All")
        return {
            "fnModel": _exported(torchModel, given, len(outputs), self._mode),
            "losses": [_loss(losses, at) for at, _ in pairs],
            "dataFlow": DataFlow(self._torch_batches, dict.fromkeys(anchored, returned)),
            "deviceInfo": deviceInfo,
            "inputShapeInfo": _shapes(inputShapeInfo, pairs),
            "patterns": patterns or passes,
            "userOptions": userOptions,
        }

    def _first(self, tensor: Any) -> Any:
        """The first batch of a step."""
        return self._by_batch(tensor)[0]

    def _by_batch(self, tensor: Any) -> Any:
        if tensor.shape[0] != self._torch_batch * self._torch_batches:
            raise RuntimeError(
                f"Shape discrepancy in input tensor of shape {tuple(tensor.shape)}. Dim 0 should "
                f"be equal to: batch size {self._torch_batch} * bps {self._torch_batches}"
            )
        return tensor.reshape(self._torch_batches, self._torch_batch, *tensor.shape[1:])

    def _arrays_of(self, data: tuple[Any, ...]) -> tuple[dict[str, Array], str]:
        """(arrays, name) of a step, from `run(inputs, targets)` or `run(name, inputs, targets)`."""
        name, tensors = (data[0], data[1:]) if isinstance(data[0], str) else ("", data)
        arrays = (self._by_batch(one).detach().numpy() for one in tensors)
        return dict(zip(self._torch_names, arrays, strict=True)), name

    def initAnchorArrays(self) -> dict[str, Array]:
        self._torch_anchors: dict[str, Array] = super().initAnchorArrays()
        return self._torch_anchors

    def run(self, *data: Any) -> None:  # type: ignore[override]
        step, name = self._arrays_of(data)
        super().run(PyStepIO(step, self._torch_anchors), name)


class InferenceSession(_ModuleNetwork, sessions.InferenceSession):
    """`InferenceSession(torchModel, inputs, targets, losses, deviceInfo, batch_size, ...)`."""

    _mode = torch.onnx.TrainingMode.EVAL

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(**self._of_module(*args, **named))


class TrainingSession(_ModuleNetwork, sessions.TrainingSession):
    """`TrainingSession(torchModel, inputs, targets, optimizer, losses, deviceInfo, ...)`."""

    _mode = torch.onnx.TrainingMode.TRAINING

    def __init__(
        self, torchModel: Any, inputs: Any, targets: Any, optimizer: Any, *args: Any, **named: Any
    ) -> None:
        given = self._of_module(torchModel, inputs, targets, *args, **named)
        super().__init__(optimizer=_optimizer(optimizer), **given)


def _several(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _shapes(given: InputShapeInfo | None, targets: list[tuple[int, Any]]) -> InputShapeInfo:
    found = given or InputShapeInfo()
    for at, one in targets:
        found.add(f"target_{at}", TensorInfo(_TYPES[one.type()], list(one.shape)))
    return found


def _loss(loss: Any, at: int) -> Loss:
    """
    PopART's equivalent of a PyTorch loss; NLLLoss takes probabilities here, not log-probabilities.
    """
    output, target, name = f"output_{at}", f"target_{at}", f"loss_{at}"
    match loss:
        case torch.nn.NLLLoss():
            return NllLoss(output, target, name)
        case torch.nn.L1Loss():
            return L1Loss(output, name, 1.0)
        case torch.nn.Identity() | torch.Tensor():
            return IdentityLoss(output, name)
        case _:
            raise RuntimeError(
                "Only NLLLoss, L1Loss or Identity loss with manual loss construction are "
                "currently supported."
            )


def _optimizer(given: Any) -> Optimizer:
    if not isinstance(given, torch.optim.SGD):
        raise RuntimeError("PopART currently only accepts SGD optimizers.")
    if given.defaults["nesterov"]:
        raise RuntimeError("Nesterov momentum is currently not supported.")
    values = {
        "defaultLearningRate": "lr",
        "defaultMomentum": "momentum",
        "defaultWeightDecay": "weight_decay",
        "defaultDampening": "dampening",
    }
    return SGD({name: (given.defaults[own], False) for name, own in values.items()})


def _exported(module: Any, inputs: list[Any], outputs: int, mode: Any) -> bytes:
    """The ONNX model of the module; parameters keep their names."""
    written = io.BytesIO()
    torch.onnx.export(
        module,
        tuple(inputs),
        written,
        input_names=[f"input_{at}" for at in range(len(inputs))],
        output_names=[f"output_{at}" for at in range(outputs)],
        opset_version=OPSET,
        training=mode,
        dynamo=False,
    )
    return written.getvalue()
