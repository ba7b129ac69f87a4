"""PopART's enumerations with its numbering, and groups of replicas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from popgraph.builder.opset.arguments import typed


class PopartEnum(Enum):
    """An enumeration as PopART binds it: `int(member)` is its number."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)


class AccumulateOuterFragmentSchedule(PopartEnum):
    """Schedule of the outer fragment of gradient accumulation."""

    Scheduler, Serial, OverlapCycleOptimized, OverlapMemoryOptimized = range(4)


class AdamMode(PopartEnum):
    """Member of the Adam family."""

    Adam, AdamNoBias, AdaMax, Lamb, LambNoBias = range(5)


class AdaptiveMode(PopartEnum):
    """Kind of adaptive optimizer."""

    AdaGrad, RMSProp, CenteredRMSProp, AdaDelta = range(4)


class AnchorReturnTypeId(PopartEnum):
    """The batches of an anchor that are returned."""

    Final, EveryN, All, Sum = range(4)


class AutodiffStitchStrategy(PopartEnum):
    """Source of forward values in the backward graph."""

    RecomputeMinimal, RecomputeAllNonInputs, AddFwdOutputs, SafeAddFwdOutputs = range(4)


class BatchSerializationBatchSchedule(PopartEnum):
    """Order of serialized batches."""

    Scheduler, Isomorphic, OverlapOnIo, OverlapOnCompute = range(4)


class BatchSerializationMethod(PopartEnum):
    """Implementation of batch serialization."""

    UnrollDynamic, UnrollStatic, Loop = range(3)


class BatchSerializationTransformContext(PopartEnum):
    """Point at which batches are serialized."""

    Forward, Backward = range(2)
    Fwd, Bwd = range(2)


class CollectiveOperator(PopartEnum):
    """Reduction of replicas' tensors in a collective."""

    Add, Mean, Mul, Min, Max, LogicalAnd, LogicalOr, SquareAdd, Local = range(9)


class CommGroupType(PopartEnum):
    """Grouping of replicas."""

    All, Consecutive, Orthogonal, Ungrouped = range(4)


class DataType(PopartEnum):
    """Element types."""

    (
        UINT8, INT8, FLOAT8_143, FLOAT8_152, UINT16, INT16, INT32, INT64, UINT32, UINT64,
        BOOL, FLOAT, FLOAT16, BFLOAT16, DOUBLE, COMPLEX64, COMPLEX128, STRING, UNDEFINED,
    ) = range(19)  # fmt: skip


class DeviceConnectionType(PopartEnum):
    """Point at which a session attaches to its device."""

    Always, OnDemand, Never = range(3)


class DeviceSelectionCriterion(PopartEnum):
    """Choice among free devices."""

    First, Random = range(2)


class DeviceType(PopartEnum):
    """Kind of device."""

    IpuModel, Cpu, Ipu, OfflineIpu, Sim = range(5)

    def __str__(self) -> str:
        return ("ipu-model", "cpu", "ipu", "offline-ipu", "sim")[int(self)]


class ExchangeStrategy(PopartEnum):
    """Point at which the data of a stream moves."""

    JustInTime, OverlapInnerLoop, OverlapLoops, OverlapStep = range(4)


class ExecutionPhaseIOSchedule(PopartEnum):
    """Point at which the data of a phase is loaded."""

    Preload, OnDemand = range(2)


class ExecutionPhaseSchedule(PopartEnum):
    """Interleaving of phases."""

    Interleaving, Batch, BatchClusteredIO = range(3)


class GradientTensorTrackingMethod(PopartEnum):
    """Gradients that automatic loss scaling tracks."""

    (
        AllNonViewChangingGradientTensors,
        ConvAndMatmulGradients,
        GradientsOfUserSpecifiedTensors,
    ) = range(3)


class InitType(PopartEnum):
    """Contents of a tensor created by `init`."""

    NoInit, Zero = range(2)


class Instrumentation(PopartEnum):
    """Scope of cycle counters."""

    Outer, Inner = range(2)


class IrSerializationFormat(PopartEnum):
    """Serialization format of the IR."""

    JSON = 0


class MeanReductionStrategy(PopartEnum):
    """Point at which the mean over replicas and micro-batches is taken."""

    Running, Post = range(2)


class MergeVarUpdateType(PopartEnum):
    """Merging of variable updates."""

    Off, All, AutoLoose, AutoTight = range(4)


class PatternsLevel(PopartEnum):
    """Sets of enabled patterns."""

    NoPatterns, Minimal, Default, All = range(4)


class RecomputationType(PopartEnum):
    """Activations that the backward pass recomputes."""

    NoRecompute, Standard, NormOnly, Pipeline, RecomputeAll = range(5)


class RecomputeType(PopartEnum):
    """Recomputation of one operation."""

    Undefined, Checkpoint, Recompute, Recomputed = range(4)


class RecoveryAction(PopartEnum):
    """Recovery from a device error."""

    IPU_RESET, LINK_RESET, PARTITION_RESET, FULL_RESET = range(4)


class ReductionType(PopartEnum):
    """Reduction of a loss to a scalar."""

    Sum, Mean, NoReduction = range(3)


class ReplicatedStreamMode(PopartEnum):
    """Sharing of an input by replicas."""

    Broadcast, Replicate = range(2)


class ReplicatedTensorSharding(PopartEnum):
    """Sharding of a tensor over replicas."""

    Off, On = range(2)


class SGDAccumulatorAndMomentum(PopartEnum):
    """Storage of SGD's gradient sum and velocity: one tensor or two."""

    Combined, Separate = range(2)


class ScatterReduction(PopartEnum):
    """Combination of scattered elements with the same index."""

    Sum, Max, Min, Mul, NoReduction = range(5)


class SubgraphCopyingStrategy(PopartEnum):
    """Point at which subgraph inputs are copied."""

    OnEnterAndExit, JustInTime = range(2)


class SyncPattern(PopartEnum):
    """Synchronization between IPUs."""

    Full, SinglePipeline, ReplicaAndLadder = range(3)

    def __str__(self) -> str:
        return ("full", "singlePipeline", "replicaAndLadder")[int(self)]


class SyntheticDataMode(PopartEnum):
    """Replacement of the host's data."""

    Off, Zeros, RandomNormal, RandomUniform = range(4)


class TensorRemapType(PopartEnum):
    """Passes that get a new layout."""

    FwdBwdReverse, FwdBwd, Fwd = range(3)


class TensorStorage(PopartEnum):
    """Storage of a tensor."""

    OnChip, OffChip = range(2)


class TileSet(PopartEnum):
    """Set of tiles."""

    Compute, IO = range(2)


class VariableRetrievalMode(PopartEnum):
    """Replicas that return a variable."""

    OnePerGroup, AllReduceReplicas, AllReplicas = range(3)


class VirtualGraphMode(PopartEnum):
    """Placement of operations on IPUs."""

    Off, Manual, Auto, ExecutionPhases = range(4)


class WeightDecayMode(PopartEnum):
    """Weight decay in the gradient or in the update."""

    Decay, L2Regularization = range(2)


@typed
@dataclass
class CommGroup:
    """Grouping of replicas, and the size of groups."""

    type: CommGroupType = CommGroupType.All
    replicaGroupSize: int = 0
