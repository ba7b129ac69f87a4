"""PopONNX's builder of 2018, whose operators are methods of the builder itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, NamedTuple

from xdsl.dialects.builtin import TensorType

from popgraph.builder.onnx.read import import_model
from popgraph.builder.opset.enums import RecomputeType, TensorStorage
from popgraph.popart import builder as modern
from popgraph.popart.api.graph_transformer import GraphTransformer
from popgraph.popart.api.names import Names
from popgraph.popart.api.settings import TensorLocation
from popgraph.popart.eras.era import PLAIN_POPONNX, Era, in_terms_of_era
from popgraph.popart.exceptions import popart_exception


class NormalizedBatch(NamedTuple):
    """The results of a BatchNormalization in training."""

    y: str
    mean: str
    var: str
    savedMean: str
    savedvar: str


Ids = Sequence[str]
Ints = Sequence[int]


class NumberedNames(Names):
    """Names every new tensor of a model by the next number."""

    def new(self, stem: str, output: int | None = None) -> str:
        number = 1
        while self.is_taken(str(number)):
            number += 1
        self.take(str(number))
        return str(number)


class Builder(modern.Builder):
    """
    PopART's builder with the operators of 2018 on the builder itself: `builder.add([a, b])`.

    The ids may also be separate arguments: `builder.add(a, b)`.
    """

    ERA: ClassVar[Era] = PLAIN_POPONNX

    def __init__(self, *args: Any, **named: Any) -> None:
        with in_terms_of_era(self.ERA):
            super().__init__(*args, **named)

    def _names(self) -> Names:
        return NumberedNames() if self.ERA.numbered else super()._names()

    def aiOnnxOpset(self, version: int) -> Any:
        return _OldOperators(super().aiOnnxOpset(version), self._rank)

    @property
    def aiOnnx(self) -> Any:
        return self.aiOnnxOpset(self._root._version or self.ERA.opset)

    @property
    def aiGraphcore(self) -> Any:
        return _OldOperators(super().aiGraphcore, self._rank)

    def _rank(self, id: str) -> int | None:
        """The rank of a tensor, if known."""
        type_ = self.type_of(id)
        return type_.get_num_dims() if isinstance(type_, TensorType) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "aiOnnxOpset")):
            return super().__getattr__(name)
        method = getattr(self.aiOnnx, name, None)
        if method is None:
            raise AttributeError(f"'Builder' object has no attribute '{name}'")
        return method

    def getTensorTranslation(self) -> dict[str, str]:
        """The identity mapping of names."""
        return {id: id for id in [*self.getInputTensorIds(), *self.getValueTensorIds()]}

    ipuNumber = modern.Builder.virtualGraph
    pingPongPhase = modern.Builder.executionPhase
    getPingPongPhase = modern.Builder.getExecutionPhase
    hasPingPongPhase = modern.Builder.hasExecutionPhase

    def cacheOutput(self, *args: Any, value: TensorStorage = TensorStorage.OnChip) -> Any:
        """Whether an IPU stores the results of nodes off chip."""
        if args and isinstance(args[-1], TensorStorage):
            *args, value = args  # type: ignore[assignment]
        return self.outputTensorLocation(*args, value=TensorLocation(value))

    def recomputeOutputInBackwardPass(self, *args: Any, **named: Any) -> None:
        """Accepts a bool as value, as in the first versions."""
        kinds = {False: RecomputeType.Checkpoint, True: RecomputeType.Recompute}
        given = [kinds[one] if isinstance(one, bool) else one for one in args]
        if isinstance(named.get("value"), bool):
            named["value"] = kinds[named["value"]]
        super().recomputeOutputInBackwardPass(*given, **named)

    def convertInitializersToConstants(self, ids: Sequence[str]) -> None:
        transformer = GraphTransformer(self.getModelProto())
        transformer.convertInitializersToConstants(ids)
        self.take(import_model(transformer.getModelProto(), self.weights))

    def addOutputTensor(self, outputName: str) -> None:
        """Adds an output; ignores names of losses, which only a session computes."""
        if self._draft.writer.has_value(outputName):
            super().addOutputTensor(outputName)

    def elu(self, args: Ids, debugPrefix: str = "") -> str:
        return self._first("elu", args, debugPrefix)

    def lstm(self, args: Ids, debugPrefix: str = "") -> list[str]:
        """All hidden states, the last one, and the last cell state."""
        hidden = self.getTensorShape(args[2])[-1]
        found = self.aiOnnx.lstm(list(args), 3, hidden_size=hidden, debugContext=debugPrefix)
        return list(found)

    def batchnormalizationTraining(
        self, x: str, scale: str, b: str, mean: str, var: str, *rest: Any, **named: Any
    ) -> NormalizedBatch:
        """Normalizes by batch statistics, and updates running statistics."""
        return NormalizedBatch(*self._normalized([x, scale, b, mean, var], 5, *rest, **named))

    def batchnormalizationTesting(
        self, x: str, scale: str, b: str, mean: str, var: str, *rest: Any, **named: Any
    ) -> str:
        """Normalizes by the given statistics."""
        return self._normalized([x, scale, b, mean, var], 1, *rest, **named)[0]

    def _normalized(
        self,
        args: list[str],
        outputs: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        spatial: int = 1,
        debugPrefix: str = "",
    ) -> list[str]:
        if spatial != 1:
            raise popart_exception(
                f"spatial = {spatial} is not supported",
                "batchnormalization",
                "statistics are those of whole channels: leave spatial out",
            )
        normalize = self.aiOnnx.batchnormalization
        return list(normalize(args, outputs, epsilon, momentum, debugContext=debugPrefix))

    def convolution(
        self,
        args: Ids,
        strides: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int = 1,
        cacheOperation: bool = True,
        debugPrefix: str = "",
    ) -> str:
        windows = {"strides": strides, "pads": padding, "dilations": dilation}
        return self._first("conv", args, debugPrefix, **windows, group=groups)

    def averagepool(
        self, args: Ids, kernel_shape: Ints, strides: Ints, padding: Ints, debugPrefix: str = ""
    ) -> str:
        windows = {"kernel_shape": kernel_shape, "strides": strides, "pads": padding}
        return self._first("averagepool", args, debugPrefix, **windows)

    def maxpool(
        self, args: Ids, kernel_shape: Ints, strides: Ints, padding: Ints, debugPrefix: str = ""
    ) -> str:
        windows = {"kernel_shape": kernel_shape, "strides": strides, "pads": padding}
        return self._first("maxpool", args, debugPrefix, num_outputs=1, **windows)

    def gemm(
        self, args: Ids, alpha: float, beta: float, transA: int, transB: int, debugPrefix: str = ""
    ) -> str:
        return str(self.aiOnnx.gemm(list(args), alpha, beta, transA, transB, debugPrefix))

    def pad(
        self, args: Ids, mode: str, pads: Ints, value: float = 0.0, debugPrefix: str = ""
    ) -> str:
        return self._first("pad", args, debugPrefix, pads=pads, mode=mode, value=value)

    def slice(self, args: Ids, axes: Ints, starts: Ints, ends: Ints, debugPrefix: str = "") -> str:
        return self._first("slice", args, debugPrefix, ends=ends, starts=starts, axes=axes)

    def subsample(self, args: Ids, strides: Ints, debugPrefix: str = "") -> str:
        return str(self.aiGraphcore.subsample(list(args), list(strides), debugPrefix))

    def dropout(self, args: Ids, ratio: float = 0.5, debugPrefix: str = "") -> str:
        return self._first("dropout", args, debugPrefix, num_outputs=1, ratio=ratio)

    def _first(self, name: str, args: Ids, debugPrefix: str, **named: Any) -> str:
        """The first result of a current operator; lists may be given as tuples."""
        given = {key: list(one) if isinstance(one, tuple) else one for key, one in named.items()}
        found = getattr(self.aiOnnx, name)(list(args), **given, debugPrefix=debugPrefix)
        return str(found if isinstance(found, str) else found[0])

    def constant(self, initVal: Any, debugPrefix: str = "") -> str:
        return str(self.aiOnnx.constant(initVal, debugPrefix))

    def reshape_const(  # type: ignore[override]
        self, args: Any, shape: Any, *rest: Any, **named: Any
    ) -> str:
        """`reshape_const([x], shape)`, or PopART's form with the opset first."""
        if isinstance(args, list | tuple):
            args, shape, rest = self.aiOnnx, args, (list(shape), *rest)
        return super().reshape_const(args, shape, *rest, **named)


class _OldOperators:
    """The operators of an opset, with the argument conventions of old programs."""

    def __init__(self, operators: Any, rank: Callable[[str], int | None]) -> None:
        self._operators, self._rank = operators, rank

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._operators, name)
        if not callable(found):
            return found
        return _flat(self._along_axes(found) if name.startswith("reduce") else found)

    def _along_axes(self, reduce: Callable[..., str]) -> Callable[..., str]:
        """A reduction that ignores axes beyond the tensor's rank."""

        @wraps(reduce)
        def reduced(
            args: Sequence[str], axes: Sequence[int] | None = None, *rest: Any, **named: Any
        ) -> str:
            rank = self._rank(args[0]) if axes else None
            here = axes if rank is None else [axis for axis in axes or () if axis < rank]
            return reduce(args, here or axes, *rest, **named)

        return reduced

    def __str__(self) -> str:
        return str(self._operators)

    def detach(self, args: Ids, pass_through_creation: int = 0, debugPrefix: str = "") -> str:
        """Stops gradients; the memory layout hint has no effect."""
        return str(_flat(self._operators.detach)(list(args), debugPrefix=debugPrefix))


def _flat(method: Callable[..., Any]) -> Callable[..., Any]:
    """Accepts ids as separate arguments, and the old name of the debug context."""

    def flat(*args: Any, debugPrefix: str = "", **named: Any) -> Any:
        if args and all(isinstance(one, str) for one in args):
            args = (list(args),)
        if debugPrefix:
            named["debugContext"] = debugPrefix
        return method(*args, **named)

    flat.__doc__ = method.__doc__
    return flat
