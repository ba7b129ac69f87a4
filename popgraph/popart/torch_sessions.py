"""Sessions of PyTorch modules, which PopART had for some years: `popart.torch.TrainingSession`."""

from __future__ import annotations

import io
from typing import Any

from popgraph.popart.api.dataflow import AnchorReturnType, DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.losses import IdentityLoss, L1Loss, Loss, NllLoss
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.optimizers import SGD
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_io import PyStepIO
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.eras import sessions
from popgraph.popart.eras.era import era_named
from popgraph.popart.sessions.session import Session
from popgraph.popart.torch_writer import OPSET, torch
from popgraph.support.arrays import Array

_TYPES = {
    "torch.DoubleTensor": "FLOAT",
    "torch.FloatTensor": "FLOAT",
    "torch.HalfTensor": "FLOAT16",
    "torch.LongTensor": "INT32",
    "torch.IntTensor": "INT32",
    "torch.ShortTensor": "INT16",
    "torch.CharTensor": "INT8",
}


class _OfModule(Session):
    """A module as a session: inputs `input_0`, outputs `output_0`, targets and losses likewise."""

    ERA = era_named("2020-05")

    _mode: Any
    """Whether the module is exported as it trains."""

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
        """What a session of the module takes; the data are those of a step, all batches of it."""
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
        """The arrays of a step, and its name: `run(inputs, targets)`, a name before them if any."""
        name, tensors = (data[0], data[1:]) if isinstance(data[0], str) else ("", data)
        arrays = (self._by_batch(one).detach().numpy() for one in tensors)
        return dict(zip(self._torch_names, arrays, strict=True)), name

    def initAnchorArrays(self) -> dict[str, Array]:
        self._torch_anchors: dict[str, Array] = super().initAnchorArrays()
        return self._torch_anchors

    def run(self, *data: Any) -> None:  # type: ignore[override]
        step, name = self._arrays_of(data)
        super().run(PyStepIO(step, self._torch_anchors), name)


class InferenceSession(_OfModule, sessions.InferenceSession):
    """`InferenceSession(torchModel, inputs, targets, losses, deviceInfo, batch_size, ...)`."""

    _mode = torch.onnx.TrainingMode.EVAL

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(**self._of_module(*args, **named))


class TrainingSession(_OfModule, sessions.TrainingSession):
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
    """PopART's loss of PyTorch's; an NLLLoss has probabilities here, not their logarithms."""
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
    """The module's ONNX model, parameters under their own names."""
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
