"""PopONNX's `PytorchNetWriter`: saves a PyTorch module, and trains it as a session does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from popgraph.popart.api.graph_transformer import GraphTransformer
from popgraph.popart.api.losses import L1Loss, NllLoss
from popgraph.popart.api.optimizers import SGD
from popgraph.popart.net_writer import NetWriter
from popgraph.support.arrays import Array
from popgraph.support.writing import write_file

torch: Any = import_module("torch")

Batch = dict[str, Array]

OPSET = 9
"""The version of ai.onnx that PopART's programs are of."""


def conv3x3(in_planes: int, out_planes: int, stride: int = 1) -> Any:
    """A convolution of 3x3 that keeps the size of images, without a bias."""
    return torch.nn.Conv2d(in_planes, out_planes, 3, stride=stride, padding=1, bias=False)


class PytorchNetWriter(NetWriter):
    """
    `PytorchNetWriter(inNames, outNames, losses, optimizer, dataFeed, inputShapeInfo, module,
    samplesPerBatch)`; without losses, the module's one output is the loss.

    The module takes the list of its inputs. `samplesPerBatch` is what `evaluate` needs.
    """

    _NAMES: ClassVar[tuple[str, ...]] = (*NetWriter._NAMES, "module", "samplesPerBatch")
    module: Any
    samplesPerBatch: int | None

    def getTorchOptimizer(self) -> Any:
        """The optimizer as one of PyTorch."""
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
        """The sum of the losses, by PyTorch."""
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
        """The parameters behind each batch of a step."""
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
        """The batches of a step: along an axis of their own, or one behind the other."""
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
    """An array for PyTorch, whose labels have 64 bits; what is no label is a number of FLOAT."""
    if labels and array.dtype == np.int32:
        return torch.as_tensor(array.astype(np.int64))
    return torch.as_tensor(array if labels else array.astype(np.float32))


def _samples(batch: Batch, count: int | None) -> Sequence[Batch]:
    size = count or len(next(iter(batch.values())))
    return [{name: array[at : at + 1] for name, array in batch.items()} for at in range(size)]
