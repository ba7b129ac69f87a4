"""PopART's `GraphTransformer`, which rewrites ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from popgraph.builder.onnx import conversions
from popgraph.builder.onnx.conversions import Conversion
from popgraph.builder.onnx.external_weights import mark, save_externally
from popgraph.builder.onnx.message import read_message
from popgraph.builder.opset.arguments import typed
from popgraph.popart.api.unreadable import reading_model
from popgraph.popart.exceptions import as_popart_errors
from popgraph.support import dtypes


def _conversion(source: str, target: str) -> Callable[[GraphTransformer], None]:
    return lambda self: self._convert(source, target)


@typed
class GraphTransformer:
    """
    Rewrites a model, a file or its bytes; `getModelProto` gives what it has become.

    Conversions change the element types of weights, constants and declared values, those of graphs
    inside of nodes, too, where PopART refuses. What an operator's attributes say, such as the type
    that Cast makes, stays.
    """

    def __init__(self, modelProtoOrFilename: str | bytes | Path) -> None:
        with reading_model(modelProtoOrFilename):
            self._model = read_message(modelProtoOrFilename)

    def getModelProto(self) -> bytes:
        return bytes(self._model.SerializeToString())

    def _convert(self, source: str, target: str, clip: bool = False) -> None:
        before, after = (dtypes.BY_POPART[one].onnx for one in (source, target))
        with as_popart_errors():
            Conversion(before, after, clip).convert(self._model)

    convertBFloats16ToFloat32 = _conversion("BFLOAT16", "FLOAT")
    convertDoublesToFloats = _conversion("DOUBLE", "FLOAT")
    convertDoublesToHalfs = _conversion("DOUBLE", "FLOAT16")
    convertFloatsToHalfs = _conversion("FLOAT", "FLOAT16")
    convertINT16ToINT32 = _conversion("INT16", "INT32")
    convertINT8ToINT32 = _conversion("INT8", "INT32")
    convertUINT16ToINT32 = _conversion("UINT16", "INT32")
    convertUINT8ToINT32 = _conversion("UINT8", "INT32")

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Numbers that do not fit are an error, unless `clip`, which takes the nearest."""
        self._convert("INT64", "INT32", clip)

    def convertInitializersToConstants(self, ids: Sequence[str]) -> None:
        with as_popart_errors():
            conversions.make_constants(self._model, ids)

    def convertAllFixedPointInitializersToConstants(self) -> None:
        self.convertInitializersToConstants(conversions.fixed_point_weights(self._model))

    def removeUnusedInputs(self) -> None:
        conversions.remove_unused_inputs(self._model)

    def prepareNodesForTraining(self) -> None:
        conversions.prepare_for_training(self._model)

    def saveInitializersExternally(self, ids: Sequence[str], filename: str) -> None:
        """Writes weights to a file, which the model then names."""
        with as_popart_errors():
            mark(self._model, save_externally(self._model, ids, filename))
