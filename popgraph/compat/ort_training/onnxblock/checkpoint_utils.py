"""`save_checkpoint` and `load_checkpoint_to_model`: parameters of blocks to and from files."""

from __future__ import annotations

import os
from collections.abc import Sequence

import onnx
from onnx import ModelProto, TensorProto

from popgraph.compat.ort_training import checkpoint_file
from popgraph.compat.ort_training.checkpoint_file import Contents, Tensor
from popgraph.compat.ort_training.errors import UnknownValue, WrongCall


def save_checkpoint(
    parameters: tuple[Sequence[TensorProto], Sequence[TensorProto]],
    path_to_checkpoint: str | os.PathLike[str],
    nominal_checkpoint: bool = False,
) -> None:
    """
    Writes trainable and frozen parameters as a checkpoint.

    A nominal checkpoint has their names, types and shapes only.
    """
    if parameters is None:
        raise WrongCall("No checkpoint parameters provided.", hint="pass block.parameters()")
    contents = Contents()
    for tensors, is_trained in zip(parameters, (True, False), strict=True):
        for one in tensors:
            array = onnx.numpy_helper.to_array(one)
            data = None if nominal_checkpoint else array
            contents.tensors[one.name] = Tensor(
                one.name, array.dtype, array.shape, is_trained, data
            )
    checkpoint_file.write(contents, path_to_checkpoint, optimizer=False)


def load_checkpoint_to_model(path_to_checkpoint: str | os.PathLike[str], model: ModelProto) -> None:
    """Sets those initializers of a model that are parameters of a checkpoint."""
    contents = checkpoint_file.read(path_to_checkpoint)
    known = {one.name: one for one in model.graph.initializer}
    if not known.keys() & contents.tensors.keys():
        raise UnknownValue(
            f"no initializer of graph {model.graph.name!r} is a parameter of the checkpoint",
            str(path_to_checkpoint),
            f"its parameters are {', '.join(list(contents.tensors)[:8])}",
        )
    for name, one in contents.tensors.items():
        if name not in known:
            continue
        if one.data is None:
            raise WrongCall(
                "a nominal checkpoint has no values", str(path_to_checkpoint), "load another one"
            )
        known[name].CopyFrom(onnx.numpy_helper.from_array(one.data, name))
