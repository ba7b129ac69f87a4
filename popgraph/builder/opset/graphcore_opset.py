"""The operators of `builder.aiGraphcore`, with their shape inference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.builder.opset.enums import (
    DataType,
    InitType,
    PopartEnum,
    ReductionType,
    ScatterReduction,
)
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.opsets import incompatible_arguments
from popgraph.dialects.onnx.types import UNKNOWN, static_shape, tensor_type
from popgraph.support import dtypes, shapes
from popgraph.support.shapes import Shape

DOMAIN = "ai.graphcore"
REDUCTIONS = {"Mean": "Mean", "Sum": "Sum", "NoReduction": "None"}

Result = Attribute
"""The type of a result; `UNKNOWN` until the model is compiled."""


class CustomNodeSink(Protocol):
    """What these operators need of a builder."""

    def add_custom_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        result_types: Sequence[Attribute],
        debugContext: object,
    ) -> list[str]: ...

    def type_of(self, id: str) -> Attribute: ...


_M = TypeVar("_M", bound=Callable[..., Any])


def _checked(method: _M) -> _M:
    """Reports calls that do not fit the signature as PopART does."""
    signature = inspect.signature(method)

    @wraps(method)
    def checked(*args: object, **named: object) -> object:
        try:
            ids = signature.bind(*args, **named).arguments.get("args", [])
        except TypeError as error:
            raise incompatible_arguments(method.__name__, signature, (args[1:], named)) from error
        if not isinstance(ids, list | tuple) or not all(isinstance(id, str) for id in ids):
            raise incompatible_arguments(method.__name__, signature, (args[1:], named))
        return method(*args, **named)

    return checked  # type: ignore[return-value]


class AiGraphcoreOpset1:
    """PopART's own operators. Each method adds a node and returns the ids of its outputs."""

    version = 1

    def __init__(self, builder: CustomNodeSink) -> None:
        self._builder = builder

    def __init_subclass__(cls) -> None:
        raise TypeError("AiGraphcoreOpset1 is complete")

    # shared by the methods

    def _one(
        self,
        op_type: str,
        args: Sequence[str],
        context: object,
        result: Result | None = None,
        **attributes: object,
    ) -> str:
        """A node with one result, like its first argument unless told otherwise."""
        type_ = self._type(args, 0) if result is None else result
        return self._many(op_type, args, context, [type_], **attributes)[0]

    def _many(
        self,
        op_type: str,
        args: Sequence[str],
        context: object,
        results: Sequence[Result],
        **attributes: object,
    ) -> list[str]:
        given = {
            name.rstrip("_"): int(value) if isinstance(value, PopartEnum | bool) else value
            for name, value in attributes.items()
            if value is not None and value != []
        }
        return self._builder.add_custom_node(op_type, DOMAIN, args, given, results, context)

    def _type(self, args: Sequence[str], place: int) -> Attribute:
        return self._builder.type_of(args[place]) if place < len(args) else UNKNOWN

    def _shape(self, args: Sequence[str], place: int) -> Shape | None:
        return static_shape(self._type(args, place))

    def _shaped(self, args: Sequence[str], shape: Sequence[int] | None) -> Result:
        """The first argument's element type with another shape."""
        type_ = self._type(args, 0)
        if shape is None or not isinstance(type_, TensorType):
            return UNKNOWN
        return tensor_type(type_.element_type, shape)

    def _broadcast(self, args: Sequence[str]) -> Result:
        found = [self._shape(args, place) for place in range(len(args))]
        known = [shape for shape in found if shape is not None]
        return self._shaped(args, shapes.broadcast(*known) if len(known) == len(found) else None)

    def _reduced(
        self, args: Sequence[str], reduction: ReductionType, whole: Shape | None
    ) -> Result:
        return self._shaped(args, whole if reduction is ReductionType.NoReduction else ())

    # losses

    @_checked
    def l1loss(
        self,
        args: list[str],
        lambda_: float = 1.0,
        reduction: ReductionType = ReductionType.Mean,
        debugContext: object = "",
    ) -> str:
        """lambda * |x|, summed up or averaged over all elements."""
        whole = self._shape(args, 0)
        if whole == ():
            raise popart_exception("L1Op not valid for rank-0 tensor (scalar)")
        result = self._reduced(args, reduction, whole)
        kind = REDUCTIONS[reduction.name]
        attributes: dict[str, object] = {"lambda": float(lambda_), "reduction": kind}
        return self._many("L1", args, debugContext, [result], **attributes)[0]

    @_checked
    def nllloss(
        self,
        args: list[str],
        reduction: ReductionType = ReductionType.Mean,
        ignoreIndex: int | None = None,
        inputIsLogProbability: bool = False,
        debugContext: object = "",
    ) -> str:
        """-log of the probability that each row gives its label: args are probabilities, labels."""
        return self._one(
            "Nll",
            args,
            debugContext,
            self._reduced(args, reduction, self._shape(args, 1)),
            reduction=REDUCTIONS[reduction.name],
            ignoreIndex=ignoreIndex,
            inputIsLogProbability=inputIsLogProbability,
        )

    @_checked
    def identityloss(
        self,
        args: list[str],
        reduction: ReductionType = ReductionType.Mean,
        debugContext: object = "",
    ) -> str:
        """Makes any tensor a loss."""
        result = self._reduced(args, reduction, self._shape(args, 0))
        kind = REDUCTIONS[reduction.name]
        return self._one("IdentityLoss", args, debugContext, result, reduction=kind)

    @_checked
    def ctcloss(
        self,
        args: list[str],
        reduction: ReductionType = ReductionType.Mean,
        blank: int = 0,
        outDataType: str = "UNDEFINED",
        zeroInfinity: bool = False,
        debugContext: object = "",
    ) -> str:
        """Connectionist temporal classification."""
        shape = self._shape(args, 0)
        result = self._reduced(args, reduction, None if shape is None else (shape[1],))
        return self._many(
            "Ctc",
            args,
            debugContext,
            [result, self._type(args, 0)],
            reduction=REDUCTIONS[reduction.name],
            blank=blank,
            outDataType=outDataType,
            zeroInfinity=zeroInfinity,
        )[0]

    # one tensor in, one like it out

    @_checked
    def nop(self, args: list[str], debugContext: object = "") -> str:
        """y = x."""
        return self._one("Nop", args, debugContext)

    @_checked
    def detach(self, args: list[str], debugContext: object = "") -> str:
        """y = x, through which no gradient flows back."""
        return self._one("Detach", args, debugContext)

    @_checked
    def gelu(self, args: list[str], debugContext: object = "") -> str:
        """Gaussian error linear unit, by its tanh approximation."""
        return self._one("Gelu", args, debugContext)

    @_checked
    def geluerf(self, args: list[str], debugContext: object = "") -> str:
        """Gaussian error linear unit."""
        return self._one("GeluErf", args, debugContext)

    @_checked
    def swish(self, args: list[str] = [], debugContext: object = "") -> str:  # noqa: B006
        """x * sigmoid(x)."""
        return self._one("Swish", args, debugContext)

    @_checked
    def round(self, args: list[str], debugContext: object = "") -> str:
        """To the nearest whole number."""
        return self._one("Round", args, debugContext)

    @_checked
    def nearbyint(self, args: list[str], debugContext: object = "") -> str:
        """To the nearest whole number, halves to even."""
        return self._one("NearbyInt", args, debugContext)

    @_checked
    def expm1(self, args: list[str], debugContext: object = "") -> str:
        """exp(x) - 1."""
        return self._one("Expm1", args, debugContext)

    @_checked
    def log1p(self, args: list[str], debugContext: object = "") -> str:
        """log(x + 1)."""
        return self._one("Log1p", args, debugContext)

    @_checked
    def bitwisenot(self, args: list[str] = [], debugContext: object = "") -> str:  # noqa: B006
        return self._one("BitwiseNot", args, debugContext)

    @_checked
    def scale(self, args: list[str], scale: float, debugContext: object = "") -> str:
        """x * scale."""
        return self._one("Scale", args, debugContext, scale=float(scale))

    @_checked
    def incrementmod(
        self, args: list[str], increment: float, modulus: float, debugContext: object = ""
    ) -> str:
        """(x + increment) mod modulus."""
        return self._one(
            "IncrementMod",
            args,
            debugContext,
            increment=float(increment),
            modulus=float(modulus),
        )

    @_checked
    def reverse(self, args: list[str], dimensions: list[int], debugContext: object = "") -> str:
        """The elements of some axes in reverse order."""
        return self._one("Reverse", args, debugContext, dimensions=dimensions)

    @_checked
    def shapeddropout(
        self, args: list[str], shape: list[int], ratio: float = 0.5, debugContext: object = ""
    ) -> str:
        """Dropout with a mask of this shape, broadcast."""
        return self._one("ShapedDropout", args, debugContext, shape=shape, ratio=float(ratio))

    @_checked
    def printtensor(
        self,
        args: list[str],
        print_gradient: int = 1,
        debugContext: object = "",
        title: str = "",
        summariseThreshold: int = 1000,
        edgeItems: int = 3,
        maxLineWidth: int = 75,
        digits: int = 8,
        floatFormat: int = 0,
        separator: str = " ",
        openBracket: str = "[",
        closeBracket: str = "]",
    ) -> str:
        """y = x, and x is printed."""
        return self._one(
            "PrintTensor",
            args,
            debugContext,
            print_gradient=print_gradient,
            title=title,
            summariseThreshold=summariseThreshold,
            edgeItems=edgeItems,
            maxLineWidth=maxLineWidth,
            digits=digits,
            floatFormat=floatFormat,
            separator=separator,
            openBracket=openBracket,
            closeBracket=closeBracket,
        )

    # two tensors in

    @_checked
    def atan2(self, args: list[str], debugContext: object = "") -> str:
        """The angle of (x, y): args are y, x."""
        return self._one("Atan2", args, debugContext, self._broadcast(args))

    @_checked
    def fmod(self, args: list[str], debugContext: object = "") -> str:
        """The remainder with the sign of the dividend."""
        return self._one("Fmod", args, debugContext, self._broadcast(args))

    @_checked
    def remainder(self, args: list[str], debugContext: object = "") -> str:
        """The remainder with the sign of the divisor."""
        return self._one("Remainder", args, debugContext, self._broadcast(args))

    @_checked
    def scaledadd(
        self, args: list[str], scale0: float = 1.0, scale1: float = 1.0, debugContext: object = ""
    ) -> str:
        """scale0 * a + scale1 * b."""
        return self._one(
            "ScaledAdd", args, debugContext, scale0=float(scale0), scale1=float(scale1)
        )

    @_checked
    def bitwiseand(self, args: list[str] = [], debugContext: object = "") -> str:  # noqa: B006
        return self._one("BitwiseAnd", args, debugContext, self._broadcast(args))

    @_checked
    def bitwiseor(self, args: list[str] = [], debugContext: object = "") -> str:  # noqa: B006
        return self._one("BitwiseOr", args, debugContext, self._broadcast(args))

    @_checked
    def bitwisexor(self, args: list[str] = [], debugContext: object = "") -> str:  # noqa: B006
        return self._one("BitwiseXor", args, debugContext, self._broadcast(args))

    @_checked
    def bitwisexnor(self, args: list[str] = [], debugContext: object = "") -> str:  # noqa: B006
        return self._one("BitwiseXnor", args, debugContext, self._broadcast(args))

    @_checked
    def copyvarupdate(self, args: list[str], debugContext: object = "") -> str:
        """Gives the variable args[0] the value args[1] at the end of the step."""
        return self._one("CopyVarUpdate", args, debugContext)

    # shapes

    def reshape(self, args: list[str] | str, shape: list[int], debugContext: object = "") -> str:
        """The same elements in another shape; one dimension may be -1."""
        args = [args] if isinstance(args, str) else args
        whole = self._shape(args, 0)
        result = None if whole is None else _with_rest(shape, whole)
        return self._one("Reshape", args, debugContext, self._shaped(args, result), shape=shape)

    @_checked
    def subsample(self, args: list[str], strides: list[int], debugContext: object = "") -> str:
        """Every nth element along each axis."""
        whole = self._shape(args, 0)
        if 0 in strides:
            raise popart_exception(f"Strides invalid. 0 stride at index {strides.index(0)}")
        result = whole and tuple(-(-d // s) for d, s in zip(whole, strides, strict=True))
        return self._one(
            "Subsample", args, debugContext, self._shaped(args, result), strides=strides
        )

    @_checked
    def slice(
        self,
        args: list[str],
        ends: list[int],
        starts: list[int],
        axes: list[int] = [],  # noqa: B006
        debugContext: object = "",
    ) -> str:
        whole = self._shape(args, 0)
        result = None
        if whole is not None:
            sizes = list(whole)
            for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=False):
                sizes[axis] = len(range(whole[axis])[start:end])
            result = tuple(sizes)
        return self._one(
            "Slice",
            args,
            debugContext,
            self._shaped(args, result),
            ends=ends,
            starts=starts,
            axes=axes,
        )

    @_checked
    def depthtospace(
        self, args: list[str], blocksize: int, mode: str = "DCR", debugContext: object = ""
    ) -> str:
        whole = self._shape(args, 0)
        result = None
        if whole is not None:
            n, c, *image = whole
            result = (n, c // blocksize ** len(image), *(size * blocksize for size in image))
        return self._one(
            "DepthToSpace",
            args,
            debugContext,
            self._shaped(args, result),
            blocksize=blocksize,
            mode=mode,
        )

    @_checked
    def init(
        self,
        shape: list[int],
        data_type: int | DataType,
        init_type: int | InitType,
        batch_axis: int | object = -1,
        debugContext: object = "",
    ) -> str:
        """A new tensor: of zeros, or of anything."""
        row = dtypes.BY_POPART[_member(DataType, data_type).name]
        if isinstance(batch_axis, str):
            batch_axis, debugContext = -1, batch_axis
        return self._many(
            "Init",
            [],
            debugContext,
            [tensor_type(row, shape)],
            shape=shape,
            data_type=row.onnx,
            init_type=_member(InitType, init_type),
            batch_axis=batch_axis,
        )[0]

    @_checked
    def dynamicslice(
        self,
        args: list[str],
        axes: list[int],
        sizes: list[int],
        noOverlap: int = 0,
        debugContext: object = "",
    ) -> str:
        """A slice whose offsets, args[1], are known at run time only."""
        whole = self._shape(args, 0)
        result = None
        if whole is not None:
            placed = dict(zip(axes, sizes, strict=True))
            result = tuple(placed.get(axis, size) for axis, size in enumerate(whole))
        return self._one(
            "DynamicSlice",
            args,
            debugContext,
            self._shaped(args, result),
            axes=axes,
            sizes=sizes,
            noOverlap=noOverlap,
        )

    @_checked
    def dynamicupdate(
        self,
        args: list[str],
        axes: list[int],
        sizes: list[int],
        noOverlap: int = 0,
        debugContext: object = "",
    ) -> str:
        """args[0] with args[2] put in at the offsets args[1]."""
        return self._one(
            "DynamicUpdate", args, debugContext, axes=axes, sizes=sizes, noOverlap=noOverlap
        )

    @_checked
    def dynamiczero(
        self, args: list[str], axes: list[int], sizes: list[int], debugContext: object = ""
    ) -> str:
        return self._one("DynamicZero", args, debugContext, axes=axes, sizes=sizes)

    @_checked
    def dynamicadd(
        self, args: list[str], axes: list[int], sizes: list[int], debugContext: object = ""
    ) -> str:
        return self._one("DynamicAdd", args, debugContext, axes=axes, sizes=sizes)

    # normalization, reduction, scattering

    @_checked
    def batchnormalization(
        self,
        args: list[str],
        num_outputs: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        debugContext: object = "",
    ) -> list[str]:
        results = [self._type(args, 0), *[self._type(args, 1)] * (num_outputs - 1)]
        return self._many(
            "BatchNormalization", args, debugContext, results, epsilon=epsilon, momentum=momentum
        )

    @_checked
    def groupnormalization(
        self, args: list[str], num_groups: int, epsilon: float = 1e-5, debugContext: object = ""
    ) -> list[str]:
        """Normalizes groups of channels: the result, the means, the inverse deviations."""
        shape = self._shape(args, 0)
        statistics = self._shaped(args, shape and (shape[0] * num_groups,))
        results = [self._type(args, 0), statistics, statistics]
        return self._many(
            "GroupNormalization",
            args,
            debugContext,
            results,
            num_groups=num_groups,
            epsilon=epsilon,
        )

    @_checked
    def lstm(
        self, args: list[str], outputFullSequence: int = 1, debugContext: object = ""
    ) -> list[str]:
        """The outputs of all steps of an LSTM, or of the last one, and the cells at the end."""
        x, weights = self._shape(args, 0), self._shape(args, 1)
        output = state = None
        if x is not None and weights is not None:
            state = (x[1], weights[2])
            output = (x[0], *state) if outputFullSequence else state
        results = [self._shaped(args, output), self._shaped(args, state)]
        return self._many(
            "LSTM", args, debugContext, results, outputFullSequence=outputFullSequence
        )

    @_checked
    def reducemedian(
        self,
        args: list[str],
        axes: list[int] | None = None,
        keepdims: int = 1,
        debugContext: object = "",
    ) -> list[str]:
        """The medians, and where they stand."""
        shape = self._shape(args, 0)
        result = None
        if shape is not None:
            reduced = [axis % len(shape) for axis in axes] if axes else range(len(shape))
            result = shapes.reduced(shape, list(reduced), bool(keepdims))
        indices = UNKNOWN if result is None else tensor_type("i32", result)
        results = [self._shaped(args, result), indices]
        return self._many("ReduceMedian", args, debugContext, results, axes=axes, keepdims=keepdims)

    @_checked
    def scatterreduce(
        self,
        args: list[str],
        axis_size: int,
        axis: int = -1,
        reduction: ScatterReduction = ScatterReduction.Sum,
        enable_index_broadcast: int = 1,
        debugContext: object = "",
    ) -> str:
        """Collects the rows args[0] into `axis_size` places, by the indices args[1]."""
        shape = self._shape(args, 0)
        result = None
        if shape is not None:
            place = axis % len(shape)
            result = (*shape[:place], axis_size, *shape[place + 1 :])
        return self._one(
            "ScatterReduce",
            args,
            debugContext,
            self._shaped(args, result),
            axis_size=axis_size,
            axis=axis,
            reduction=reduction,
            enable_index_broadcast=enable_index_broadcast,
        )

    # graphs

    @_checked
    def call(
        self, args: list[str], num_outputs: int, callee: Any, debugName: object = ""
    ) -> list[str]:
        """The outputs of another graph, a builder made by `createSubgraphBuilder`."""
        types = [callee.type_of(id) for id in callee.getOutputTensorIds()][:num_outputs]
        return self._many("Call", args, debugName, types, callee=callee.graph())


def _member(enum: type[PopartEnum], value: int | PopartEnum) -> Any:
    return value if isinstance(value, enum) else enum(value)


def _with_rest(shape: Sequence[int], whole: Shape) -> Shape:
    """Fills in the one dimension that is -1."""
    known = shapes.prod(size for size in shape if size != -1)
    rest = shapes.prod(whole) // known if known else 0
    return tuple(rest if size == -1 else size for size in shape)
