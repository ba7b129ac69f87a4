"""`generate_artifacts`: the files that training starts from, out of an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from popgraph.compat.ort_training.errors import MissingFile, WrongCall, WrongType
from popgraph.compat.ort_training.graphs import opset_of
from popgraph.compat.ort_training.onnxblock import (
    Block,
    TrainingBlock,
    base,
    blocks,
    empty_base,
    optim,
    save_checkpoint,
)
from popgraph.compat.ort_training.onnxblock import loss as losses
from popgraph.compat.ort_training.onnxblock.model_accessor import custom_op_library as refuse
from popgraph.support.writing import write_file


class LossType(Enum):
    """Losses by name."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(Enum):
    """Optimizers by name."""

    AdamW = 1
    SGD = 2


_LOSSES: Mapping[LossType, type[Block]] = {
    LossType.MSELoss: losses.MSELoss,
    LossType.CrossEntropyLoss: losses.CrossEntropyLoss,
    LossType.BCEWithLogitsLoss: losses.BCEWithLogitsLoss,
    LossType.L1Loss: losses.L1Loss,
}
_OPTIMIZERS: Mapping[OptimType, type[Block]] = {
    OptimType.AdamW: optim.AdamW,
    OptimType.SGD: optim.SGD,
}


def generate_artifacts(
    model: ModelProto | str | os.PathLike[str],
    requires_grad: Sequence[str] | None = None,
    frozen_params: Sequence[str] | None = None,
    loss: LossType | Block | None = None,
    optimizer: OptimType | Block | None = None,
    artifact_directory: str | bytes | os.PathLike[str] | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: str | os.PathLike[str] | None = None,
    additional_output_names: list[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: Sequence[str] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """
    Writes `training_model.onnx`, `eval_model.onnx`, `checkpoint` and `optimizer_model.onnx`.

    `requires_grad` lists the initializers to train. They and `frozen_params` are in the checkpoint;
    others stay constants of the models. Without `loss`, the first output of the model is the loss.
    Without `optimizer`, there is no optimizer model. Outputs in `additional_output_names` follow
    the loss.

    `sizes` sets symbolic dimensions of the training model, such as `{"batch": 8}`. All of its
    operators are then standard ones, as they are for a model without symbolic dimensions.
    """
    _refuse(ort_format, custom_op_library, additional_output_names)
    loaded, path = _loaded(model)
    both = set(requires_grad or ()) & set(frozen_params or ())
    if both:
        raise WrongCall(
            "A parameter cannot be frozen and require gradient computation at the same time "
            f"{sorted(both)}",
            "generate_artifacts",
            "list it in requires_grad or in frozen_params",
        )
    block = _Training(_loss_of(loss), loss_input_names, additional_output_names or [])
    block._sizes = sizes
    for name in requires_grad or ():
        block.requires_grad(name)
    for name in frozen_params or ():
        block.requires_grad(name, False)
    chosen = _optimizer_of(optimizer)
    folder = _folder(artifact_directory)
    with base(loaded, path):
        block(*(output.name for output in loaded.graph.output))
    training, evaluation = block.to_model_proto()
    _save(training, folder / f"{prefix}training_model.onnx")
    _save(evaluation, folder / f"{prefix}eval_model.onnx")
    save_checkpoint(block.parameters(), folder / f"{prefix}checkpoint")
    if nominal_checkpoint:
        nominal = folder / f"{prefix}nominal_checkpoint"
        save_checkpoint(block.parameters(), nominal, nominal_checkpoint=True)
    if chosen is None:
        return
    with empty_base(opset_of(loaded)) as accessor:
        chosen(block.parameters())
    _save(accessor.model, folder / f"{prefix}optimizer_model.onnx")


class _Training(TrainingBlock):
    """The loss of the outputs of a model, followed by additional outputs."""

    def __init__(
        self, loss: Block, loss_inputs: Sequence[str] | None, outputs: Sequence[str]
    ) -> None:
        super().__init__()
        self._loss, self._loss_inputs, self._outputs = loss, loss_inputs, outputs

    def build(self, *names: str) -> Any:
        """Adds the loss."""
        made = self._loss(*(self._loss_inputs or names))
        made = (made,) if isinstance(made, str) else tuple(made)
        return (*made, *self._outputs)


def _refuse(ort_format: bool, library: Any, outputs: object) -> None:
    """Refuses arguments without a counterpart."""
    if ort_format:
        raise WrongCall(
            "artifacts are not written in the ORT format",
            "generate_artifacts(ort_format=True)",
            "leave it out: the .onnx files are complete",
        )
    if library is not None:
        refuse(library)
    if outputs is not None and not isinstance(outputs, list):
        raise WrongCall(
            f"Unknown type provided for additional output names {type(outputs)}. "
            "Expected additional output names to be a list of strings.",
            "generate_artifacts",
            f"additional_output_names=[{outputs!r}]",
        )


def _loaded(model: object) -> tuple[ModelProto, str | None]:
    """The model and its path."""
    if isinstance(model, ModelProto):
        return model, None
    if not isinstance(model, str | os.PathLike):
        raise WrongCall(
            "Please pass in either a string or an ONNX ModelProto for the model.",
            "generate_artifacts",
            f"onnx.load(path), or the path; this is {type(model).__name__}",
        )
    path = os.fspath(model)
    if not Path(path).is_file():
        raise MissingFile(f"there is no model {path!r}", "generate_artifacts", "check the path")
    return onnx.load(path), path


def _loss_of(loss: object) -> Block:
    if loss is None:
        return blocks.PassThrough()
    if isinstance(loss, LossType):
        return _LOSSES[loss]()
    if isinstance(loss, Block):
        return loss
    raise WrongCall(
        f"Unknown loss provided {type(loss)}.",
        "generate_artifacts",
        f"LossType.{', LossType.'.join(LossType.__members__)}, or a block of onnxblock",
    )


def _optimizer_of(optimizer: object) -> Block | None:
    if optimizer is None or isinstance(optimizer, Block):
        return optimizer
    if isinstance(optimizer, OptimType):
        return _OPTIMIZERS[optimizer]()
    raise WrongType(
        f"Unknown optimizer provided {type(optimizer)}.",
        "generate_artifacts",
        "OptimType.AdamW, OptimType.SGD, or a block such as onnxblock.optim.AdamW(eps=1e-8)",
    )


def _folder(artifact_directory: str | bytes | os.PathLike[str] | None) -> Path:
    """The folder of the artifacts, which must exist."""
    folder = Path(os.fsdecode(artifact_directory or os.curdir))
    if not folder.is_dir():
        raise MissingFile(
            f"there is no folder {str(folder)!r}", "generate_artifacts", "create it first"
        )
    return folder


def _save(model: ModelProto, path: Path) -> None:
    write_file(path, [model.SerializeToString()])
