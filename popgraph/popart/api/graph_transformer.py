"""PopART's `GraphTransformer`, which rewrites ONNX models, and its errors for invalid models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from popgraph.builder.onnx import conversions
from popgraph.builder.onnx.conversions import Conversion
from popgraph.builder.onnx.external_weights import mark, save_externally
from popgraph.builder.onnx.message import read_message
from popgraph.builder.opset.arguments import typed
from popgraph.dialects.onnx.reader import RepeatedInput
from popgraph.popart.exceptions import as_popart_errors, popart_exception, unreadable_model
from popgraph.support import dtypes
from popgraph.support.errors import ModelError


@contextmanager
def reading_model(source: object) -> Iterator[None]:
    """Converts errors while a model is read to PopART's."""
    with as_popart_errors():
        missing = isinstance(source, str) and not Path(source).exists()
        try:
            if missing:
                raise ModelError("no such file", str(source))
            yield
        except RepeatedInput as error:
            raise popart_exception(
                f"Invalid ONNX Model : repeated name: ({error.name}) in input list"
            ) from error
        except ModelError as error:
            if not missing and error.where != "the bytes given":
                raise
            raise unreadable_model(
                f"Failed to load a ModelProto from the string '{_shown(source)}'.\nCheck that it "
                "is either a valid path to an existing onnx model file, or is a valid onnx "
                "ModelProto string."
            ) from error


def _shown(source: object) -> str:
    """The first bytes of an invalid model, as Python prints bytes."""
    given = source.encode() if isinstance(source, str) else source
    if not isinstance(given, bytes):
        return type(source).__name__
    shown = repr(b'"' + given[:_SHOWN])[3:-1]  # The double quote makes Python escape the others.
    return shown + ("..." if len(given) >= _SHOWN else "")


_SHOWN = 101


def _conversion(source: str, target: str) -> Callable[[GraphTransformer], None]:
    return lambda self: self._convert(source, target)


@typed
class GraphTransformer:
    """
    Rewrites a model, given as a file or bytes; `getModelProto` returns the result.

    Conversions change the element types of weights, constants and declared values, including those
    in subgraphs, which PopART rejects. Types in attributes, such as that of Cast, are kept.
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
        """Values out of range are an error, or with `clip` are clamped."""
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
        """Writes weights to a file, which the model then refers to."""
        with as_popart_errors():
            mark(self._model, save_externally(self._model, ids, filename))
