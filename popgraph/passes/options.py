"""The options of a compilation: the user's wishes, the machine and the thresholds."""

from __future__ import annotations

import warnings
from dataclasses import InitVar, dataclass

from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.replication import Replication
from popgraph.support.errors import PassError
from popgraph.support.index_checks import CHOICES
from popgraph.support.machine import Machine
from popgraph.support.tuning import Target, Tuning

CONSTANT, VARIABLE = "constant", "variable"
"""What the weights of a model are in its program."""
GRADIENT = "Gradient___"
"""What the names of gradients begin with."""


@dataclass(frozen=True)
class Training:
    """What to train: the output to make small, and by which rule."""

    loss: str
    optimizer: OptimizerSpec
    gradients: tuple[str, ...] = ()
    """Tensors whose gradient is to be an output, named `Gradient___<tensor>`."""
    after_step: tuple[str, ...] = ()
    """Variables (weights, optimizer state, streamed scalars) that are to be outputs as well, as
    they are when the step has ended."""
    frozen: tuple[str, ...] = ()
    """Weights that stay as they are: they get no gradient, and running statistics do not move."""
    tracked: tuple[str, ...] = ()
    """Tensors whose gradient is to be an output as well, where they have one."""
    delayed: tuple[str, ...] = ()
    """Weights that the host gives twice: as they are now, for the gradients, and as they were some
    batches ago, as the variable `Delayed___w`, with which the loss is computed."""


@dataclass(frozen=True)
class Options:
    """What the user decides about a compilation."""

    training: Training | None = None
    variables: bool = False
    """Weights are variables that the host may write (always so in training)."""
    extra_outputs: tuple[str, ...] = ()
    """Inner tensors, inputs or weights that are to be outputs as well."""
    appended: bool = False
    """Outputs that begin with an input give only the rest. The caller has the input, such as the
    cache of a decoder, and writes the rest after it in place."""
    replicas: Replication | None = None
    """The replicas that one program is to be, whose collectives are within it; None: one."""
    machine: Machine | None = None
    """What code is made for; None: the machine at hand, or a generic one where nothing runs."""
    tuning: Tuning = Tuning()
    """The thresholds of decisions."""
    threads: int = 1
    """So many are to share the work (`compile(threads=...)` says it); any number gives the same."""
    winograd: bool = True
    """3x3 convolutions may be computed with fewer multiplications, which rounds differently."""
    schedules: tuple[str, ...] = ()
    """How contractions run: `WHICH -> WAY`, see `dialects/tile/structured/schedule_override.py`."""
    measured: tuple[str, ...] | None = None
    """The same, followed where it fits; None: what `popgraph tune` found on this machine."""
    disabled: frozenset[str] = frozenset()
    """Names of passes to leave out; only those marked optional can be."""
    passes: tuple[object, ...] = ()
    """Passes from outside that run, too, in this order where several have one place: their names,
    passes, or `popgraph.extend.Placed`."""
    indices: str | None = None
    """What an index that data brings, and that is out of range, means: "error" (the run ends
    with an `IndicesError`) or "nearest"; None: an error, but the nearest where data is made up."""
    straight_through: bool = False
    """In training, gradients pass QuantizeLinear and the DequantizeLinear behind it as if nothing
    were rounded; otherwise none reaches what is quantized."""
    dropout: bool = True
    """In training, Dropout drops elements unless an input or attribute of the node says whether it
    does; False: it keeps all, as ONNX has it."""
    bucket_bytes: int = 4 * 2**20
    """Gradients that several processes add up are told together until they take so much."""
    recompute: str = ""
    """What gradients compute again instead of reading it, so that it need not be kept: "standard",
    "norms", or the "nodes" in `recomputed`; "": nothing."""
    recomputed: tuple[str, ...] = ()
    """Nodes whose results gradients compute again."""
    stochastic_rounding: bool = False
    """What is computed in half precision is rounded at random, so that it is right on average."""
    first_stream: int = 0
    """Where the streams of random numbers begin: parts of one model must not draw the same."""
    search: tuple[str, ...] = ()
    """Folders in which a `.pgraph` text looks for what it imports."""
    vector_bytes: InitVar[int | None] = None
    """Deprecated: `machine.vector_bytes`."""
    registers: InitVar[int | None] = None
    """Deprecated: `machine.registers`."""

    def __post_init__(self, vector_bytes: int | None, registers: int | None) -> None:
        if vector_bytes is not None or registers is not None:
            warnings.warn(
                "Options(vector_bytes=..., registers=...) is now "
                "Options(machine=Machine(vector_bytes=..., registers=...))",
                DeprecationWarning,
                stacklevel=3,
            )
            given = self.target.machine
            vectors = vector_bytes or given.vector_bytes
            machine = given.with_vectors(vectors, registers or given.registers)
            object.__setattr__(self, "machine", machine)
        if isinstance(self.passes, str):
            raise PassError(
                f"{self.passes!r} is no list of passes", "Options.passes", f"[{self.passes!r}]"
            )
        object.__setattr__(self, "passes", tuple(self.passes))
        if self.indices not in (None, *CHOICES):
            raise PassError(
                f"indices cannot be {self.indices!r}",
                "Options.indices",
                f"one of {', '.join(map(repr, CHOICES))}",
            )

    @property
    def weights(self) -> str:
        """What initializers of floats become."""
        return VARIABLE if self.variables or self.training is not None else CONSTANT

    @property
    def names_tensors(self) -> bool:
        """Whether tensors are requested by the names that they have in the model."""
        return bool(self.training or self.variables or self.extra_outputs)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The weights that training leaves as they are."""
        return () if self.training is None else self.training.frozen

    @property
    def target(self) -> Target:
        """What passes are handed of the machine and the thresholds."""
        return Target(self.machine or Machine(), self.tuning)
