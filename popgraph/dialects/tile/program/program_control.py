"""Branches and loops of a program: they run other programs on memory passed to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, MemRefType, SymbolRefAttr, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    base,
    irdl_op_definition,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.control_signatures import UNBOUNDED
from popgraph.dialects.program.interned import symbol, whole

MEMORY = base(MemRefType)


class RunsPrograms(IRDLOperation):
    """
    A step that runs other programs of the module.

    The arena and the persistent memory of a callee are slices of its caller's.
    """

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    WRITTEN: ClassVar[tuple[str, ...]] = ()
    """Groups of written operands; memory that is written before it is read counts as written."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs that it may run, in the order of their persistent memory."""
        raise AssertionError(f"{self.name} must name its programs")

    @property
    def repetitions(self) -> int:
        """An upper bound on the runs of a program; 1 for unbounded loops."""
        return 1

    @property
    def label(self) -> str:
        """The name in profiles."""
        return " or ".join(self.programs)

    def role(self, program: str) -> str:
        """The role of a program, for messages: the name of the model's node follows."""
        return f"{program} of"

    @property
    def arguments(self) -> Sequence[SSAValue]:
        """All memory operands."""
        return self.operands

    @property
    def written(self) -> frozenset[int]:
        """The indices of written operands."""
        values = {value for group in self.WRITTEN for value in self.group(group)}
        return frozenset(at for at, value in enumerate(self.operands) if value in values)

    def group(self, name: str) -> list[SSAValue]:
        """The operands of a group, which may be optional."""
        held = getattr(self, name)
        if held is None:
            return []
        return [held] if isinstance(held, SSAValue) else list(held)


@irdl_op_definition
class PrepareProgramOp(RunsPrograms):
    """Initializes the persistent memory of a program, once."""

    name = "tile.prepare_program"
    program = prop_def(SymbolRefAttr)
    scratch = opt_operand_def(MEMORY)
    persistent = var_operand_def(MEMORY)
    assembly_format = (
        "$program (`scratch` $scratch^ `:` type($scratch))? "
        "(`persistent` $persistent^ `:` type($persistent))? attr-dict"
    )
    WRITTEN: ClassVar = ("scratch", "persistent")

    def __init__(
        self, program: str, scratch: SSAValue | None, persistent: Sequence[SSAValue]
    ) -> None:
        super().__init__(operands=[scratch, persistent], properties={"program": symbol(program)})

    @property
    def programs(self) -> tuple[str, ...]:
        return (self.program.string_value(),)


@irdl_op_definition
class CondOp(RunsPrograms):
    """Runs the first program if the predicate is true, else the second."""

    name = "tile.cond"
    then_program = prop_def(SymbolRefAttr)
    else_program = prop_def(SymbolRefAttr)
    predicate = var_operand_def(MEMORY)
    captured = var_operand_def(MEMORY)
    outputs = var_operand_def(MEMORY)
    scratch = opt_operand_def(MEMORY)
    persistent = var_operand_def(MEMORY)
    assembly_format = (
        "$then_program `else` $else_program `if` $predicate `:` type($predicate) "
        "(`captured` $captured^ `:` type($captured))? "
        "(`outputs` $outputs^ `:` type($outputs))? "
        "(`scratch` $scratch^ `:` type($scratch))? "
        "(`persistent` $persistent^ `:` type($persistent))? attr-dict"
    )
    WRITTEN: ClassVar = ("outputs", "scratch")

    def __init__(
        self,
        programs: Sequence[str],
        predicate: SSAValue,
        captured: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        scratch: SSAValue | None,
        persistent: Sequence[SSAValue],
    ) -> None:
        then, otherwise = map(symbol, programs)
        super().__init__(
            operands=[[predicate], captured, outputs, scratch, persistent],
            properties={"then_program": then, "else_program": otherwise},
        )

    @property
    def programs(self) -> tuple[str, ...]:
        return self.then_program.string_value(), self.else_program.string_value()

    def role(self, program: str) -> str:
        return "the then branch of" if program == self.programs[0] else "the else branch of"


@irdl_op_definition
class LoopOp(RunsPrograms):
    """
    Runs a program once per iteration.

    The first iteration reads the carried values in `carried`. Iterations write them alternately to
    `finals` and `spares`, such that the last one writes `finals`. If the loop ends early and the
    last iteration wrote `spares`, these are copied. Rows of `scanned` and `stacked` are slices.
    """

    name = "tile.loop"
    program = prop_def(SymbolRefAttr)
    trips = prop_def(IntegerAttr)
    reverse = opt_prop_def(UnitAttr)
    turn = var_operand_def(MEMORY)
    go = opt_operand_def(MEMORY)
    next_go = opt_operand_def(MEMORY)
    limit = opt_operand_def(MEMORY)
    carried = var_operand_def(MEMORY)
    scanned = var_operand_def(MEMORY)
    captured = var_operand_def(MEMORY)
    finals = var_operand_def(MEMORY)
    spares = var_operand_def(MEMORY)
    stacked = var_operand_def(MEMORY)
    scratch = opt_operand_def(MEMORY)
    persistent = var_operand_def(MEMORY)
    assembly_format = (
        "$program `trips` $trips (`reverse` $reverse^)? `turn` $turn `:` type($turn) "
        "(`while` $go^ `:` type($go))? "
        "(`next` $next_go^ `:` type($next_go))? "
        "(`limit` $limit^ `:` type($limit))? "
        "(`carried` $carried^ `:` type($carried))? "
        "(`scanned` $scanned^ `:` type($scanned))? "
        "(`captured` $captured^ `:` type($captured))? "
        "(`finals` $finals^ `:` type($finals))? "
        "(`spares` $spares^ `:` type($spares))? "
        "(`stacked` $stacked^ `:` type($stacked))? "
        "(`scratch` $scratch^ `:` type($scratch))? "
        "(`persistent` $persistent^ `:` type($persistent))? attr-dict"
    )
    WRITTEN: ClassVar = ("turn", "next_go", "finals", "spares", "stacked", "scratch")

    def __init__(
        self,
        program: str,
        trips: int,
        *,
        reverse: bool,
        turn: SSAValue,
        go: SSAValue | None,
        next_go: SSAValue | None,
        limit: SSAValue | None,
        carried: Sequence[SSAValue],
        scanned: Sequence[SSAValue],
        captured: Sequence[SSAValue],
        finals: Sequence[SSAValue],
        spares: Sequence[SSAValue],
        stacked: Sequence[SSAValue],
        scratch: SSAValue | None,
        persistent: Sequence[SSAValue],
    ) -> None:
        steering = [[turn], go, next_go, limit]
        before, after = [carried, scanned, captured], [finals, spares, stacked]
        super().__init__(
            operands=[*steering, *before, *after, scratch, persistent],
            properties={
                "program": symbol(program),
                "trips": whole(trips),
                "reverse": UnitAttr() if reverse else None,
            },
        )

    @property
    def programs(self) -> tuple[str, ...]:
        return (self.program.string_value(),)

    def role(self, program: str) -> str:
        return "a turn of the loop"

    @property
    def turns(self) -> int:
        """The trip count; an upper bound if the loop can end early."""
        return self.trips.value.data

    @property
    def ends_early(self) -> bool:
        """Whether a run-time value decides the number of iterations."""
        return self.go is not None or self.limit is not None

    @property
    def repetitions(self) -> int:
        return 1 if self.turns == UNBOUNDED else self.turns

    @property
    def label(self) -> str:
        many = "until it ends" if self.ends_early else f"{self.turns} times"
        return f"{self.program.string_value()} {many}"

    def verify_(self) -> None:
        if not len(self.carried) == len(self.finals) == len(self.spares):
            raise VerifyException("each carried value needs memory in carried, finals and spares")
        if (self.go is None) != (self.next_go is None):
            raise VerifyException("a condition needs memory for its first and its next value")


def runs_programs(op: Operation) -> tuple[str, ...]:
    """The programs that an operation may run."""
    return op.programs if isinstance(op, RunsPrograms) else ()
