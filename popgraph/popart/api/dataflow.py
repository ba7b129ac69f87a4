"""PopART's data flow: anchors, batches per step, shapes of open inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import AnchorReturnTypeId, ExchangeStrategy, TileSet
from popgraph.engine.plan import StepPlan
from popgraph.engine.streams import ReturnPolicy
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import popart_exception
from popgraph.support.shapes import Shape

_IDS = {member.name.upper(): member for member in AnchorReturnTypeId}

_NO_PERIOD = "A return period should not be supplied for this anchor return type"


class AnchorReturnType:
    """
    The values of an anchor that a step returns: `"All"`, `"Final"`, `"Sum"`, or every Nth with
    `AnchorReturnType("EveryN", N)`. Case is ignored.
    """

    @typed
    def __init__(
        self,
        anchorReturnTypeString: str = "All",
        returnPeriod: int | TileSet | None = None,
        tileSet: TileSet | ExchangeStrategy = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ) -> None:
        if isinstance(returnPeriod, TileSet):
            if isinstance(tileSet, ExchangeStrategy):
                exchangeStrategy = tileSet
            tileSet = returnPeriod
            returnPeriod = None
        self._text = anchorReturnTypeString
        self._id = self._parse(anchorReturnTypeString)
        self._period = self._check_period(returnPeriod)
        self._tile_set, self._exchange = tileSet, exchangeStrategy

    @staticmethod
    def _parse(text: str) -> AnchorReturnTypeId:
        found = _IDS.get(text.upper())
        if found is None:
            raise popart_exception(
                f"Invalid anchor return type ID supplied: {text}",
                hint=f"one of {', '.join(member.name for member in AnchorReturnTypeId)}",
            )
        return found

    def _check_period(self, period: int | None) -> int:
        if self._id is not AnchorReturnTypeId.EveryN:
            if period is not None:
                raise popart_exception(_NO_PERIOD)
            return 1
        if period is None:
            raise popart_exception("Must specify return period with option 'EVERYN'")
        if period <= 0:
            raise popart_exception("Anchor return period must be greater than zero")
        return period

    def id(self) -> AnchorReturnTypeId:
        return self._id

    def rp(self) -> int:
        """The return period."""
        if self._id is not AnchorReturnTypeId.EveryN:
            raise popart_exception(_NO_PERIOD)
        return self._period

    def tileSet(self) -> TileSet:
        assert isinstance(self._tile_set, TileSet)
        return self._tile_set

    def exchangeStrategy(self) -> ExchangeStrategy:
        return self._exchange

    @property
    def kept(self) -> ReturnPolicy:
        """The values that are returned."""
        last, summed = AnchorReturnTypeId.Final, AnchorReturnTypeId.Sum
        return ReturnPolicy(self._period, last=self._id is last, summed=self._id is summed)

    def prefix(self, step: StepPlan) -> Shape:
        """The leading dimensions of the anchor's array."""
        return self.kept.axes(step)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        period = f", {self._period}" if self._id is AnchorReturnTypeId.EveryN else ""
        return f"AnchorReturnType({self._text!r}{period})"


@typed
class DataFlow:
    """The number of batches per step, and the tensors to return."""

    def __init__(
        self,
        batchesPerStep: int,
        anchorTensors: Mapping[str, AnchorReturnType] | Iterable[str] = (),
        anchorReturnType: AnchorReturnType | None = None,
        *,
        anchorIds: Iterable[str] | None = None,
    ) -> None:
        tensors = anchorTensors if anchorIds is None else anchorIds
        self._anchors: dict[str, AnchorReturnType]
        if isinstance(tensors, Mapping):
            self._anchors = dict(tensors)
        else:
            self._anchors = dict.fromkeys(tensors, anchorReturnType or AnchorReturnType("All"))
        self.setBatchesPerStep(batchesPerStep)

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        if batchesPerStep <= 0:
            raise popart_exception("'Batches per step' must be greater than zero")
        for returned in self._anchors.values():
            if returned.id() is not AnchorReturnTypeId.EveryN:
                continue
            if returned.rp() > batchesPerStep:
                raise popart_exception("Return period must be <= to the number of batches per step")
            if batchesPerStep % returned.rp():
                raise popart_exception(
                    "Return period must be a factor of the number of batches per step"
                )
        self._batches = batchesPerStep

    def batchesPerStep(self) -> int:
        return self._batches

    def isAnchored(self, id: str) -> bool:
        return id in self._anchors

    def nAnchors(self) -> int:
        return len(self._anchors)

    def anchors(self) -> list[str]:
        return sorted(self._anchors)

    def art(self, id: str) -> AnchorReturnType:
        if id not in self._anchors:
            raise popart_exception(f"Tensor {id} is not an anchor")
        return self._anchors[id]

    def only(self, ids: Iterable[str]) -> DataFlow:
        """The same data flow with fewer anchors."""
        fewer = copy(self)
        fewer._anchors = {id: self._anchors[id] for id in ids}
        return fewer

    def anchor_shape(self, id: str, shape: Shape, step: StepPlan) -> Shape:
        """The shape of the array that a step fills for an anchor of this shape."""
        return self.art(id).prefix(step) + shape

    def __repr__(self) -> str:
        return f"DataFlow({self._batches}, {self._anchors})"


@typed
class InputShapeInfo:
    """Shapes and element types of inputs that the model leaves open."""

    def __init__(self) -> None:
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        self._infos[id] = info

    def get(self, id: str) -> TensorInfo:
        if id not in self._infos:
            raise popart_exception(f"No input shape info for Tensor `{id}' in InputShapeInfo::get")
        return self._infos[id]

    def has(self, id: str) -> bool:
        return id in self._infos

    def ids(self) -> list[str]:
        return list(self._infos)
