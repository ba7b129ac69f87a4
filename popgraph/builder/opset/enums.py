"""PopART's enumerations, with its numbering, and groups of replicas."""

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
    """How the outer fragment of gradient accumulation is scheduled."""

    Scheduler, Serial, OverlapCycleOptimized, OverlapMemoryOptimized = range(4)


class AdamMode(PopartEnum):
    """Which member of the Adam family."""

    Adam, AdamNoBias, AdaMax, Lamb, LambNoBias = range(5)


class AdaptiveMode(PopartEnum):
    """Which adaptive optimizer."""

    AdaGrad, RMSProp, CenteredRMSProp, AdaDelta = range(4)


class AnchorReturnTypeId(PopartEnum):
    """Which batches of an anchor come back."""

    Final, EveryN, All, Sum = range(4)


class AutodiffStitchStrategy(PopartEnum):
    """How forward values reach the backward graph."""

    RecomputeMinimal, RecomputeAllNonInputs, AddFwdOutputs, SafeAddFwdOutputs = range(4)


class BatchSerializationBatchSchedule(PopartEnum):
    """In which order serialised batches run."""

    Scheduler, Isomorphic, OverlapOnIo, OverlapOnCompute = range(4)


class BatchSerializationMethod(PopartEnum):
    """How a batch is cut."""

    UnrollDynamic, UnrollStatic, Loop = range(3)


class BatchSerializationTransformContext(PopartEnum):
    """When batches are serialised."""

    Forward, Backward = range(2)
    Fwd, Bwd = range(2)


class CollectiveOperator(PopartEnum):
    """What replicas make of the tensors that they have."""

    Add, Mean, Mul, Min, Max, LogicalAnd, LogicalOr, SquareAdd, Local = range(9)


class CommGroupType(PopartEnum):
    """Which replicas form a group."""

    All, Consecutive, Orthogonal, Ungrouped = range(4)


class DataType(PopartEnum):
    """The element types."""

    (
        UINT8, INT8, FLOAT8_143, FLOAT8_152, UINT16, INT16, INT32, INT64, UINT32, UINT64,
        BOOL, FLOAT, FLOAT16, BFLOAT16, DOUBLE, COMPLEX64, COMPLEX128, STRING, UNDEFINED,
    ) = range(19)  # fmt: skip


class DeviceConnectionType(PopartEnum):
    """When a session attaches to its device."""

    Always, OnDemand, Never = range(3)


class DeviceSelectionCriterion(PopartEnum):
    """Which of several free devices is taken."""

    First, Random = range(2)


class DeviceType(PopartEnum):
    """What runs the program."""

    IpuModel, Cpu, Ipu, OfflineIpu, Sim = range(5)

    def __str__(self) -> str:
        return ("ipu-model", "cpu", "ipu", "offline-ipu", "sim")[int(self)]


class ExchangeStrategy(PopartEnum):
    """When a stream's data moves."""

    JustInTime, OverlapInnerLoop, OverlapLoops, OverlapStep = range(4)


class ExecutionPhaseIOSchedule(PopartEnum):
    """When a phase's data is loaded."""

    Preload, OnDemand = range(2)


class ExecutionPhaseSchedule(PopartEnum):
    """How phases interleave."""

    Interleaving, Batch, BatchClusteredIO = range(3)


class GradientTensorTrackingMethod(PopartEnum):
    """Which gradients automatic loss scaling watches."""

    (
        AllNonViewChangingGradientTensors,
        ConvAndMatmulGradients,
        GradientsOfUserSpecifiedTensors,
    ) = range(3)


class InitType(PopartEnum):
    """What `init` fills with."""

    NoInit, Zero = range(2)


class Instrumentation(PopartEnum):
    """What the cycle counters measure."""

    Outer, Inner = range(2)


class IrSerializationFormat(PopartEnum):
    """The text form of the IR."""

    JSON = 0


class MeanReductionStrategy(PopartEnum):
    """When the mean over replicas and micro-batches is taken."""

    Running, Post = range(2)


class MergeVarUpdateType(PopartEnum):
    """Whether updates of variables are merged."""

    Off, All, AutoLoose, AutoTight = range(4)


class PatternsLevel(PopartEnum):
    """Which rewrites are on."""

    NoPatterns, Minimal, Default, All = range(4)


class RecomputationType(PopartEnum):
    """What is recomputed in the backward pass."""

    NoRecompute, Standard, NormOnly, Pipeline, RecomputeAll = range(5)


class RecomputeType(PopartEnum):
    """Whether one operation is recomputed."""

    Undefined, Checkpoint, Recompute, Recomputed = range(4)


class RecoveryAction(PopartEnum):
    """What helps after a device error."""

    IPU_RESET, LINK_RESET, PARTITION_RESET, FULL_RESET = range(4)


class ReductionType(PopartEnum):
    """How a loss becomes one number."""

    Sum, Mean, NoReduction = range(3)


class ReplicatedStreamMode(PopartEnum):
    """Whether replicas share an input."""

    Broadcast, Replicate = range(2)


class ReplicatedTensorSharding(PopartEnum):
    """Whether a tensor is spread over replicas."""

    Off, On = range(2)


class SGDAccumulatorAndMomentum(PopartEnum):
    """Whether SGD keeps gradient sum and velocity in one tensor."""

    Combined, Separate = range(2)


class ScatterReduction(PopartEnum):
    """How colliding scatter elements combine."""

    Sum, Max, Min, Mul, NoReduction = range(5)


class SubgraphCopyingStrategy(PopartEnum):
    """When subgraph inputs are copied."""

    OnEnterAndExit, JustInTime = range(2)


class SyncPattern(PopartEnum):
    """How IPUs wait for each other."""

    Full, SinglePipeline, ReplicaAndLadder = range(3)

    def __str__(self) -> str:
        return ("full", "singlePipeline", "replicaAndLadder")[int(self)]


class SyntheticDataMode(PopartEnum):
    """What replaces the host's data."""

    Off, Zeros, RandomNormal, RandomUniform = range(4)


class TensorRemapType(PopartEnum):
    """Which passes get a new layout."""

    FwdBwdReverse, FwdBwd, Fwd = range(3)


class TensorStorage(PopartEnum):
    """Where a tensor lives."""

    OnChip, OffChip = range(2)


class TileSet(PopartEnum):
    """Which tiles."""

    Compute, IO = range(2)


class VariableRetrievalMode(PopartEnum):
    """Which replicas return a variable."""

    OnePerGroup, AllReduceReplicas, AllReplicas = range(3)


class VirtualGraphMode(PopartEnum):
    """How operations are placed on IPUs."""

    Off, Manual, Auto, ExecutionPhases = range(4)


class WeightDecayMode(PopartEnum):
    """Whether decay enters the gradient or the update."""

    Decay, L2Regularization = range(2)


@typed
@dataclass
class CommGroup:
    """Which replicas form a group, and how many of them."""

    type: CommGroupType = CommGroupType.All
    replicaGroupSize: int = 0
