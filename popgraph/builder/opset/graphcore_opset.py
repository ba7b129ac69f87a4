"""The operators of `builder.aiGraphcore`: their signatures, and the types of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute

from popgraph.builder.opset.element_types import named_row
from popgraph.builder.opset.enums import (
    CollectiveOperator,
    CommGroup,
    DataType,
    InitType,
    PopartEnum,
    ReductionType,
    ScatterReduction,
    TensorRemapType,
)
from popgraph.builder.opset.graphcore_operator import (
    REDUCTIONS,
    Operands,
    Results,
    all_results,
    checked,
    elementwise,
    one_result,
    without_operands,
)
from popgraph.builder.opset.windows import check_sets, checked_parameters, convolved_shape
from popgraph.dialects.onnx.annotations import GROUP
from popgraph.dialects.onnx.types import UNKNOWN, static_shape, tensor_type
from popgraph.support import dtypes, shapes
from popgraph.support.errors import CallError
from popgraph.support.shapes import Shape

_like, _like_or_nothing = Operands._like, Operands._like_or_nothing
_broadcasting, _broadcasting_or_nothing = Operands._broadcasting, Operands._broadcasting_or_nothing


class AiGraphcoreOpset1(Operands):
    """PopART's own operators. Each method adds a node and returns the ids of its outputs."""

    version = 1

    def __init_subclass__(cls) -> None:
        raise TypeError("AiGraphcoreOpset1 is complete")

    def __str__(self) -> str:
        return type(self).__name__

    # losses

    @one_result("L1")
    def l1loss(
        self,
        args: list[str],
        lambda_: float = 1.0,
        reduction: ReductionType = ReductionType.Mean,
        debugContext: object = "",
    ) -> Results:
        """lambda * |x|, summed or averaged over all elements."""
        return self._reduced(args, reduction, self._shape(args))

    @one_result("Nll")
    def nllloss(
        self,
        args: list[str],
        reduction: ReductionType = ReductionType.Mean,
        ignoreIndex: int | None = None,
        inputIsLogProbability: bool = False,
        debugContext: object = "",
    ) -> Results:
        """-log p[label] of each row; args are probabilities, labels."""
        return self._reduced(args, reduction, self._shape(args, 1))

    @one_result("IdentityLoss")
    def identityloss(
        self,
        args: list[str],
        reduction: ReductionType = ReductionType.Mean,
        debugContext: object = "",
    ) -> Results:
        """Makes any tensor a loss."""
        return self._reduced(args, reduction, self._shape(args))

    @checked
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
        named = None if outDataType == "UNDEFINED" else named_row(outDataType)
        attributes = {
            "reduction": REDUCTIONS[reduction.name],
            "blank": blank,
            "outDataType": 0 if named is None else named.onnx,
            "zeroInfinity": int(zeroInfinity),
        }
        types: list[Attribute] = [UNKNOWN, UNKNOWN]
        if not self._refuses("Ctc", args, attributes):
            shape, like = self._shape(args), self._type(args)
            loss = self._reduced(args, reduction, None if shape is None else (shape[1],))
            if named is not None and (known := static_shape(loss)) is not None:
                loss = tensor_type(named, known)
            types = [loss, like]
        return self._add("Ctc", args, attributes, types, debugContext)[0]

    @all_results("CtcBeamSearchDecoder", 3)
    def ctcbeamsearchdecoder(
        self,
        args: list[str],
        blank: int = 0,
        beam_width: int = 100,
        top_paths: int = 1,
        debug_context: object = "",
    ) -> Results:
        """The most likely label sequences: log probabilities, lengths, labels."""
        shape = self._shape(args)
        found = None if shape is None else (shape[1], top_paths)
        full = None if found is None or shape is None else (*found, shape[0])
        return [self._shaped(args, found), tensor_type("u32", found), tensor_type("u32", full)]

    # unary, same shape

    nop = elementwise("Nop", _like, "y = x.")
    detach = elementwise("Detach", _like, "y = x, through which no gradient flows back.")
    gelu = elementwise("Gelu", _like, "Gaussian error linear unit, by its tanh approximation.")
    geluerf = elementwise("GeluErf", _like, "Gaussian error linear unit.")
    swish = elementwise("Swish", _like_or_nothing, "x * sigmoid(x).")
    round = elementwise("Round", _like, "To the nearest integer.")
    nearbyint = elementwise("NearbyInt", _like, "To the nearest integer, halves to even.")
    expm1 = elementwise("Expm1", _like, "exp(x) - 1.")
    log1p = elementwise("Log1p", _like, "log(x + 1).")
    bitwisenot = elementwise("BitwiseNot", _like_or_nothing)

    @one_result("Scale")
    def scale(self, args: list[str], scale: float, debugContext: object = "") -> Results:
        """x * scale."""
        return self._type(args)

    @without_operands
    @one_result("IncrementMod")
    def incrementmod(
        self, args: list[str], increment: float, modulus: float, debugContext: object = ""
    ) -> Results:
        """(x + increment) mod modulus."""
        return self._type(args)

    # collectives

    @checked
    def replicatedallreduce(
        self,
        args: list[str],
        collectiveOperator: CollectiveOperator | None = None,
        commGroup: CommGroup | None = None,
        debugContext: object = "",
    ) -> str:
        """Reduces a tensor over the replicas of a group; each gets the result."""
        given = _collective(collectiveOperator, commGroup)
        return self._add("ReplicatedAllReduce", args, given, self._type(args), debugContext)[0]

    @checked
    def replicatedreducescatter(
        self,
        args: list[str],
        collectiveOperator: CollectiveOperator | None = None,
        commGroup: CommGroup | None = None,
        debugContext: object = "",
    ) -> str:
        """Reduces a tensor over the replicas of a group; each gets an equal shard of the result."""
        given = _collective(collectiveOperator, commGroup)
        return self._add("ReplicatedReduceScatter", args, given, UNKNOWN, debugContext)[0]

    @one_result("Reverse")
    def reverse(self, args: list[str], dimensions: list[int], debugContext: object = "") -> Results:
        """Reverses the elements along some axes."""
        return self._type(args)

    @one_result("ShapedDropout")
    def shapeddropout(
        self, args: list[str], shape: list[int], ratio: float = 0.5, debugContext: object = ""
    ) -> Results:
        """Dropout with a mask of this shape, broadcast."""
        return self._type(args)

    @one_result("PrintTensor")
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
    ) -> Results:
        """y = x; a session prints x, and with `print_gradient` its gradient, to standard error."""
        return self._type(args)

    @checked
    def abort(self, args: list[str] = [], debugContext: object = "") -> None:
        """Aborts the session's step with an error if args[0] is not 0, or without arguments."""
        self._refuses("Abort", args, {})
        self._add("Abort", args, {}, [], debugContext)

    @one_result("NormalizeImage")
    def normalize_image(
        self, args: list[str], scale: float = 1.0, debugContext: object = ""
    ) -> Results:
        """(image * scale - offsets) * scales, with a fourth channel of zeros."""
        shape = self._shape(args)
        return self._shaped(args, None if shape is None else (*shape[:-1], 4), like=1)

    @one_result("TensorRemap")
    def tensorremap(
        self, args: list[str], remap_type: int | TensorRemapType = 0, debugPrefix: object = ""
    ) -> Results:
        """y = x in a new layout; has no effect here, where memory has one layout."""
        return self._type(args)

    # binary

    atan2 = elementwise("Atan2", _broadcasting, "The angle of (x, y): args are y, x.")
    fmod = elementwise("Fmod", _broadcasting, "The remainder with the sign of the dividend.")
    remainder = elementwise(
        "Remainder", _broadcasting, "The remainder with the sign of the divisor."
    )

    @one_result("ScaledAdd")
    def scaledadd(
        self, args: list[str], scale0: float = 1.0, scale1: float = 1.0, debugContext: object = ""
    ) -> Results:
        """scale0 * a + scale1 * b."""
        return self._type(args)

    bitwiseand = elementwise("BitwiseAnd", _broadcasting_or_nothing)
    bitwiseor = elementwise("BitwiseOr", _broadcasting_or_nothing)
    bitwisexor = elementwise("BitwiseXor", _broadcasting_or_nothing)
    bitwisexnor = elementwise("BitwiseXnor", _broadcasting_or_nothing)

    @one_result("CopyVarUpdate")
    def copyvarupdate(self, args: list[str], debugContext: object = "") -> Results:
        """Assigns args[1] to the variable args[0] at the end of the step."""
        if len(args) != 2:
            raise CallError("copyvarupdate should have two args.")
        if not self._builder.isInitializer(args[0]):
            raise CallError("The first arg of copyvarupdate should be an initalised tensor.")
        return self._type(args)

    @one_result("SplineWeighting")
    def splineweighting(self, args: list[str] = [], debugContext: object = "") -> Results:
        """Matmul of rows with interpolated weights: args are rows, weights, basis, indices."""
        rows, weights = self._shape(args), self._shape(args, 1)
        if rows is None or weights is None:
            return UNKNOWN
        return self._shaped(args, (rows[0], weights[2]))

    @all_results("SplineBasis", 2)
    def splinebasis(
        self, args: list[str] = [], degree: int = 1, debugContext: object = ""
    ) -> Results:
        """
        B-spline bases at points and the indices of their weights; further args: knots, openness.
        """
        shape = self._shape(args)
        result = None if shape is None else (shape[0], (degree + 1) ** shape[1])
        return [self._shaped(args, result), tensor_type("i32", result)]

    @one_result("Bucketize")
    def bucketize(self, args: list[str] = [], right: int = 0, debugContext: object = "") -> Results:
        """The index of each element's interval between boundaries args[1]."""
        return tensor_type("i32", self._shape(args))

    @all_results("Sort", 2)
    def sort(
        self,
        args: list[str] = [],
        axis: int = -1,
        descending: int = 0,
        stable: int = 0,
        debugContext: object = "",
    ) -> Results:
        """Sorts elements; returns values and their original indices."""
        return [self._type(args), tensor_type("i32", self._shape(args))]

    # shapes

    @one_result("GroupedGather")
    def groupedgather(
        self, args: list[str] = [], axis: int = 0, group_size: int = 1, debugContext: object = ""
    ) -> Results:
        """Gathers within each group along the first axis, with its own indices."""
        data, indices = self._shape(args), self._shape(args, 1)
        if data is None or indices is None:
            return UNKNOWN
        index = axis % len(data)
        return self._shaped(args, (*data[:index], *indices[1:], *data[index + 1 :]))

    @one_result("SequenceSlice")
    def sequenceslice(
        self, args: list[str], zeroUnused: int = 0, debugContext: object = ""
    ) -> Results:
        """
        Copies row sequences of args[0] into args[1]; then lengths, source and target
        offsets.
        """
        return self._type(args, 1)

    @checked
    def reshape(self, args: list[str] | str, shape: list[int], debugContext: object = "") -> str:
        """Reshapes; one dimension may be -1."""
        args = [args] if isinstance(args, str) else args
        refused = self._refuses("Reshape", args, {"shape": shape})
        full = None if refused else self._shape(args)
        result = self._shaped(args, None if full is None else _with_rest(shape, full))
        return self._add("Reshape", args, {"shape": shape}, result, debugContext)[0]

    @one_result("Subsample")
    def subsample(self, args: list[str], strides: list[int], debugContext: object = "") -> Results:
        """Every nth element along each axis."""
        full = self._shape(args)
        result = full and tuple(-(-d // s) for d, s in zip(full, strides, strict=True))
        return self._shaped(args, result)

    @one_result("Slice")
    def slice(
        self,
        args: list[str],
        ends: list[int],
        starts: list[int],
        axes: list[int] = [],
        debugContext: object = "",
    ) -> Results:
        full = self._shape(args)
        result = None
        if full is not None:
            sizes = list(full)
            for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=False):
                sizes[axis] = len(range(full[axis])[start:end])
            result = tuple(sizes)
        return self._shaped(args, result)

    @one_result("DepthToSpace")
    def depthtospace(
        self, args: list[str], blocksize: int, mode: str = "DCR", debugContext: object = ""
    ) -> Results:
        full = self._shape(args)
        result = None
        if full is not None and len(full) > 1 and blocksize > 0:
            n, c, *image = full
            result = (n, c // blocksize ** len(image), *(size * blocksize for size in image))
        return self._shaped(args, result)

    @checked
    def init(
        self,
        shape: list[int],
        data_type: int | DataType,
        init_type: int | InitType,
        batch_axis: int | str = -1,
        debugContext: object = "",
    ) -> str:
        """A new tensor, of zeros or uninitialized."""
        row = dtypes.BY_POPART[_member(DataType, data_type).name]
        if isinstance(batch_axis, str):
            batch_axis, debugContext = -1, batch_axis
        attributes = {
            "shape": shape,
            "data_type": dtypes.POPART_ORDER.index(row.popart),
            "init_type": int(_member(InitType, init_type)),
            "batch_axis": batch_axis,
        }
        return self._add("Init", [], attributes, tensor_type(row, shape), debugContext)[0]

    @one_result("DynamicSlice")
    def dynamicslice(
        self,
        args: list[str],
        axes: list[int],
        sizes: list[int],
        noOverlap: int = 0,
        debugContext: object = "",
    ) -> Results:
        """A slice whose offsets, args[1], are runtime values."""
        full = self._shape(args)
        result = None
        if full is not None:
            placed = dict(zip(axes, sizes, strict=True))
            result = tuple(placed.get(axis, size) for axis, size in enumerate(full))
        return self._type(args, 2) if len(args) > 2 else self._shaped(args, result)

    @one_result("DynamicUpdate")
    def dynamicupdate(
        self,
        args: list[str],
        axes: list[int],
        sizes: list[int],
        noOverlap: int = 0,
        debugContext: object = "",
    ) -> Results:
        """args[0] with args[2] written at the offsets args[1]."""
        return self._type(args)

    dynamiczero = elementwise("DynamicZero", Operands._placed)
    dynamicadd = elementwise("DynamicAdd", Operands._placed)

    # normalization, reduction, scattering

    @all_results("BatchNormalization")
    def batchnormalization(
        self,
        args: list[str],
        num_outputs: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        debugContext: object = "",
    ) -> Results:
        return [self._type(args), *[self._type(args, 1)] * (num_outputs - 1)]

    @all_results("GroupNormalization", 3)
    def groupnormalization(
        self, args: list[str], num_groups: int, epsilon: float = 1e-5, debugContext: object = ""
    ) -> Results:
        """Group normalization: the result, the means, the inverse standard deviations."""
        shape = self._shape(args)
        statistics = self._shaped(args, shape and (shape[0] * num_groups,))
        return [self._type(args), statistics, statistics]

    @all_results("LSTM", 2)
    def lstm(
        self, args: list[str], outputFullSequence: int = 1, debugContext: object = ""
    ) -> Results:
        """The outputs of an LSTM (all steps or the last), and the final cell state."""
        x, weights = self._shape(args), self._shape(args, 1)
        output = state = None
        if x is not None and weights is not None and len(x) == len(weights) == 3:
            state = (x[1], weights[2])
            output = (x[0], *state) if outputFullSequence else state
        return [self._shaped(args, output), self._shaped(args, state)]

    @all_results("ReduceMedian", 2)
    def reducemedian(
        self,
        args: list[str],
        axes: list[int] | None = None,
        keepdims: int = 1,
        debugContext: object = "",
    ) -> Results:
        """Medians and their indices; without axes, every element is its own median."""
        shape = self._shape(args)
        result = None
        if shape is not None:
            every = range(len(shape))
            reduced = every if axes is None else [axis % len(shape) for axis in axes]
            result = shapes.reduced(shape, list(reduced), bool(keepdims))
        indices = UNKNOWN if result is None else tensor_type("i32", result)
        return [self._shaped(args, result), indices]

    @without_operands
    @one_result("ScatterReduce")
    def scatterreduce(
        self,
        args: list[str],
        axis_size: int,
        axis: int = -1,
        reduction: ScatterReduction = ScatterReduction.Sum,
        enable_index_broadcast: int = 1,
        debugContext: object = "",
    ) -> Results:
        """Reduces rows args[0] into `axis_size` slots, by indices args[1]."""
        return self._collected(args, axis_size, axis, enable_index_broadcast, 1)

    @without_operands
    @one_result("ScatterReduce")
    def groupedscatterreduce(
        self,
        args: list[str],
        axis_size: int,
        axis: int = -1,
        reduction: ScatterReduction = ScatterReduction.Sum,
        group_size: int = 1,
        enable_index_broadcast: int = 1,
        debugContext: object = "",
    ) -> Results:
        """Like `scatterreduce`, for each of `group_size` groups along the first axis."""
        return self._collected(args, axis_size, axis, enable_index_broadcast, group_size)

    def _collected(
        self, args: list[str], axis_size: int, axis: int, broadcast: int, group_size: int
    ) -> Results:
        """The type of the initial values, otherwise from the data and the shape of the indices."""
        if len(args) > 2:
            return self._type(args, 2)
        shape, indices = self._shape(args), self._shape(args, 1)
        if shape is None or indices is None:
            return UNKNOWN
        index = axis % len(shape)
        if not broadcast:
            shape = shapes.expanded_indices_shape(indices, len(shape), index, group_size > 1)
        return self._shaped(args, (*shape[:index], axis_size, *shape[index + 1 :]))

    # several convolutions

    @checked
    def multiconv(
        self,
        args: list[list[str]],
        dilations: list[list[int]] = [],
        inDilations: list[list[int]] = [],
        pads: list[list[int]] = [],
        outPads: list[list[int]] = [],
        strides: list[list[int]] = [],
        availableMemoryProportions: list[float] = [],
        partialsTypes: list[str] = [],
        planType: str | None = None,
        perConvReservedTiles: int | None = None,
        cycleBackOff: float | None = None,
        enableConvDithering: list[int] = [],
        debugContext: object = "",
    ) -> list[str]:
        """Parallel convolutions; each has data, weights and optionally a bias."""
        if not args:
            raise CallError(
                f"MultiConvOp '{debugContext}' has no input tensors. Provide at least one set of "
                "inputs"
            )
        given = {
            "dilations": dilations,
            "inDilations": inDilations,
            "pads": pads,
            "outPads": outPads,
            "strides": strides,
        }
        for_each: dict[str, Sequence[object]] = {
            "availableMemoryProportions": availableMemoryProportions,
            "partialsTypes": partialsTypes,
            "enableConvDithering": enableConvDithering,
        }
        check_sets(args, {**given, **for_each}, str(debugContext))
        found = [[self._shape(ids, index) for index in range(len(ids))] for ids in args]
        flat = checked_parameters(args, found, given)
        types = [
            self._shaped(ids, convolved_shape(self._shape(ids), self._shape(ids, 1), index, given))
            for index, ids in enumerate(args)
        ]
        hints = {
            "planType": planType,
            "perConvReservedTiles": perConvReservedTiles,
            "cycleBackOff": cycleBackOff,
            **{name: values or None for name, values in for_each.items()},
        }
        inputs = [id for ids in args for id in (*ids, "")[:3]]
        return self._add("MultiConv", inputs, {**flat, **hints}, types, debugContext)

    # graphs

    @checked
    def call(
        self, args: list[str], num_outputs: int, callee: Any, debugContext: object = ""
    ) -> list[str]:
        """The outputs of another graph, from a builder made by `createSubgraphBuilder`."""
        types = [callee.type_of(id) for id in callee.getOutputTensorIds()]
        counts = {
            "inputs": (len(args), len(callee.called_inputs())),
            "outputs": (num_outputs, len(types)),
        }
        for what, (given, wanted) in counts.items():
            if given != wanted:
                raise CallError(
                    f"For CallOp '{debugContext}', number of {what} ({given}) does not match that "
                    f"of the callee subgraph ({wanted})"
                )
        return self._add("Call", args, {"callee": callee.called_graph()}, types, debugContext)

    @checked
    def packedDataBlock(
        self,
        args: list[str],
        maxSequenceLengths: list[int],
        resultSize: int,
        callbackBatchSize: int,
        callback: Any,
        debugContext: object = "",
    ) -> str:
        """Unpacks sequences, runs another graph on batches of them, and packs its results."""
        attributes = {
            "resultSize": resultSize,
            "callbackBatchSize": callbackBatchSize,
            "maxSequenceLengths": maxSequenceLengths,
            "callback": callback.graph(),
        }
        return self._add("PackedDataBlock", args, attributes, UNKNOWN, debugContext)[0]


def _member(enum: type[PopartEnum], value: int | PopartEnum) -> Any:
    try:
        return enum(value)
    except ValueError:
        raise CallError(f"{value} is not a value of {enum.__name__}") from None


def _with_rest(shape: Sequence[int], full: Shape) -> Shape:
    """Infers the dimension that is -1."""
    known = shapes.prod(size for size in shape if size != -1)
    rest = shapes.prod(full) // known if known else 0
    return tuple(rest if size == -1 else size for size in shape)


def _collective(combine: CollectiveOperator | None, group: CommGroup | None) -> dict[str, object]:
    """The attributes of a collective; the defaults are the sum over all replicas."""
    return {
        "__collectiveOperator": None if combine is None else int(combine),
        GROUP: None if group is None else [int(group.type), group.replicaGroupSize],
    }
