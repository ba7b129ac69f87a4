"""Stacked initializers: arrays with several values of a weight; nodes read the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from onnx import ModelProto, numpy_helper

from popgraph.dialects.onnx.tensorproto import read_tensor, write_tensor
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array


class StackedModel:
    """A model as parsed, before shapes are inferred from its initializers."""

    def __init__(self, content: bytes) -> None:
        self._proto = ModelProto.FromString(content)

    @property
    def notes(self) -> list[tuple[str, str]]:
        """The metadata properties of the model."""
        return [(one.key, one.value) for one in self._proto.metadata_props]

    def arrays(self, names: Iterable[str]) -> Mapping[str, Array]:
        """The initializers with these names, if they exist."""
        wanted = set(names)
        found = (one for one in self._proto.graph.initializer if one.name in wanted)
        return {one.name: np.asarray(numpy_helper.to_array(one)) for one in found}

    def with_firsts(self, names: Iterable[str]) -> bytes:
        """The model with the first value of each of these initializers."""
        firsts = {name: array[0] for name, array in self.arrays(names).items()}
        graph, store = self._proto.graph, WeightStore()
        for tensor in graph.initializer:
            if tensor.name in firsts:
                first = store.attribute(firsts[tensor.name])
                one = read_tensor(tensor, store).with_elements(first)
                tensor.CopyFrom(write_tensor(one, store))
        for info in (one for one in graph.input if one.name in firsts):
            shape = info.type.tensor_type.shape
            del shape.dim[:]
            for size in firsts[info.name].shape:
                shape.dim.add(dim_value=size)
        return bytes(self._proto.SerializeToString())
