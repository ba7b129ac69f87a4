"""The options of a compilation: requests of the user, the machine and the thresholds."""

from __future__ import annotations

import warnings
from dataclasses import InitVar, dataclass

from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.replication import Replication
from popgraph.support import determinism
from popgraph.support.argument_types import check_fields
from popgraph.support.derivatives import GRADIENT as GRADIENT
from popgraph.support.errors import PassError
from popgraph.support.index_checks import CHOICES
from popgraph.support.machine import Machine
from popgraph.support.tuning import Target, Tuning

CONSTANT, VARIABLE = "constant", "variable"
"""The forms that the weights of a model can have in its program."""
BF16 = "bf16"
"""The value of `Options.precision` for mixed precision."""
FLOAT, INT8 = ACTIVATIONS = ("float", "int8")
"""The types of activations that are multiplied by weights of few bits."""
SIZE, BALANCED, SPEED = OPTIMIZE = ("size", "balanced", "speed")
"""The goals that a program can have, see `Options.optimize`."""


@dataclass(frozen=True)
class Training:
    """A training: the loss to minimize, and the optimizer."""

    loss: str
    optimizer: OptimizerSpec
    gradients: tuple[str, ...] = ()
    """Tensors whose gradient becomes an output, named `Gradient___<tensor>`."""
    after_step: tuple[str, ...] = ()
    """Variables (weights, optimizer state, streamed scalars) that become outputs as well, with
    their values after the step."""
    frozen: tuple[str, ...] = ()
    """Weights that do not change: they get no gradient, and running statistics are not updated."""
    tracked: tuple[str, ...] = ()
    """Tensors whose gradient becomes an output as well, if they have one."""
    delayed: tuple[str, ...] = ()
    """Weights that the host provides twice: the current values are updated, and the loss is
    computed with values of some batches ago, in the variable `Delayed___w`."""
    parts: tuple[str, ...] = ()
    """Weights that are trained in part, with their boxes: `w[0:8, 0:4]` (`support/boxes.py`)."""


@dataclass(frozen=True)
class Options:
    """The user's choices for a compilation."""

    training: Training | None = None
    variables: bool = False
    """Weights are variables that the host may write (always so in training)."""
    extra_outputs: tuple[str, ...] = ()
    """Inner tensors, inputs or weights that become outputs as well."""
    appended: bool = False
    """Outputs that begin with an input return only the rest. The caller has the input, such as the
    cache of a decoder, and writes the rest after it in place."""
    replicas: Replication | None = None
    """The replicas that one program contains, with their collectives; None: one."""
    machine: Machine | None = None
    """The target machine; None: this machine, or a generic one if nothing runs."""
    tuning: Tuning = Tuning()
    """The thresholds of decisions."""
    threads: int = 1
    """Number of threads (set by `compile(threads=...)`); results do not depend on it."""
    optimize: str = SPEED
    """The goal: "speed"; "size", plain loops that layers share, for microcontrollers; "balanced",
    small register tiles that layers share."""
    soon: bool = False
    """Whether a short compile time matters more than speed: the goal of quick programs."""
    winograd: bool = True
    """Whether 3x3 and 2x2 convolutions may use fewer multiplications, which rounds differently."""
    schedules: tuple[str, ...] = ()
    """Schedules of contractions: `WHICH -> WAY`, see
    `dialects/tile/structured/schedule_override.py`."""
    measured: tuple[str, ...] | None = None
    """Measured schedules, used where they fit; None: the results of `popgraph tune` on this
    machine."""
    disabled: frozenset[str] = frozenset()
    """Names of passes to leave out; a `PassError` unless they are optional."""
    passes: tuple[object, ...] = ()
    """Additional passes: names, passes, or `popgraph.extend.Placed`. Several passes at the same
    position run in this order."""
    indices: str | None = None
    """The effect of an index that is out of range at run time: "error" (the run raises an
    `IndicesError`) or "nearest"; None: "error", but "nearest" if inputs are made up."""
    straight_through: bool = False
    """Whether gradients pass QuantizeLinear and the following DequantizeLinear as if nothing were
    rounded; otherwise quantized values get no gradient."""
    dropout: bool = True
    """Whether Dropout drops elements in training if no input or attribute of the node decides;
    False: it keeps all, the default of ONNX."""
    bucket_bytes: int = 4 * 2**20
    """Size from which a bucket of gradients is exchanged between processes."""
    recompute: str = ""
    """Forward values that the backward pass recomputes to save memory: "standard", "norms", or the
    "nodes" in `recomputed`; "": none."""
    recomputed: tuple[str, ...] = ()
    """Nodes whose results the backward pass recomputes."""
    precision: str = ""
    """The element type to which factors of f32 matmuls and convolutions are rounded: "bf16"; "":
    they stay f32."""
    activations: str = FLOAT
    """The type of activations that matmuls multiply by constant weights of at most 8 bits: "int8"
    rounds each block of a row, as if every `MatMulNBits` had an `accuracy_level` of 4; "float": as
    the model says. Not in training: rounding has no gradient."""
    determinism: str = ""
    """"portable": the same bits on every target and for every number of rows; "machine": on one
    machine, for every number of threads; "": as `$POPGRAPH_DETERMINISM` says, by default
    "machine"."""
    stochastic_rounding: bool = False
    """Whether half-precision results are rounded stochastically: errors average out."""
    first_stream: int = 0
    """The number of the first random stream: parts of one model need different streams."""
    search: tuple[str, ...] = ()
    """Folders that are searched for imports of a `.pgraph` text."""
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
                f"{self.passes!r} is not a list of passes", "Options.passes", f"[{self.passes!r}]"
            )
        if isinstance(self.disabled, list | tuple | set):
            object.__setattr__(self, "disabled", frozenset(self.disabled))
        check_fields(self)
        object.__setattr__(self, "determinism", determinism.wanted(self.determinism))
        object.__setattr__(self, "passes", tuple(self.passes))
        if self.optimize not in OPTIMIZE:
            raise PassError(
                f"unknown goal {self.optimize!r}",
                "Options.optimize",
                f"one of {', '.join(map(repr, OPTIMIZE))}",
            )
        if self.activations not in ACTIVATIONS:
            raise PassError(
                f"unknown type {self.activations!r} of activations",
                "Options.activations",
                f"one of {', '.join(map(repr, ACTIVATIONS))}",
            )
        if self.activations != FLOAT and self.training is not None:
            raise PassError(
                "a training step cannot round activations: rounding has no gradient",
                "Options.activations",
                f"leave out activations={self.activations!r} in training",
            )
        if self.optimize != SPEED and self.is_portable:
            raise PassError(
                f"a portable program adds in the order of speed, not of {self.optimize}",
                "Options.optimize",
                f"leave out optimize={self.optimize!r} or determinism='portable'",
            )
        if self.indices not in (None, *CHOICES):
            raise PassError(
                f"unknown value {self.indices!r} of indices",
                "Options.indices",
                f"one of {', '.join(map(repr, CHOICES))}",
            )

    @property
    def weights(self) -> str:
        """The form of float initializers in the program: CONSTANT or VARIABLE."""
        return VARIABLE if self.variables or self.training is not None else CONSTANT

    @property
    def names_tensors(self) -> bool:
        """Whether tensors are requested by their names in the model."""
        return bool(self.training or self.variables or self.extra_outputs)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The weights that training does not change."""
        return () if self.training is None else self.training.frozen

    @property
    def is_portable(self) -> bool:
        """Whether every target must compute the same bits."""
        return self.determinism == determinism.PORTABLE

    @property
    def target(self) -> Target:
        """The machine and the thresholds, for passes."""
        machine = self.machine or Machine()
        if not self.is_portable:
            return Target(machine, self.tuning)
        return Target(machine.portable(), self.tuning, portable=True)
