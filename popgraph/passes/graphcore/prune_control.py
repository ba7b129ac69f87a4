"""Takes from branches and loops what nobody reads: results, carried values, operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.transforms.dead_code_elimination import region_dce

from popgraph.dialects.graphcore.control import CondOp, Control, LoopOp, yield_of
from popgraph.dialects.program import YieldOp
from popgraph.dialects.values import values_behind


def used_operands(
    bodies: Sequence[Block], operands: Sequence[SSAValue], first: int = 0
) -> list[SSAValue]:
    """The operands that bodies use; the arguments of the others, which begin at `first`, go."""
    kept = []
    for at in reversed(range(first, first + len(operands))):
        if any(block.args[at].uses for block in bodies):
            kept.append(operands[at - first])
        else:
            for block in bodies:
                block.erase_arg(block.args[at])
    return kept[::-1]


def prune_results(op: Control) -> bool:
    """Takes away results that nobody reads, and what the bodies yield for them; whether any."""
    if isinstance(op, LoopOp):
        return _prune_loop_results(op)
    assert isinstance(op, CondOp), f"{op.name} has bodies of an unknown kind"
    wanted = [bool(result.uses) for result in op.results]
    if all(wanted):
        return False
    for block in op.bodies():
        _yield_only(block, wanted)
    _replace(op, _cond(op, op.captured), wanted)
    return True


def prune_operands(op: Control) -> bool:
    """Takes away operands that no body uses; whether there were any."""
    if isinstance(op, LoopOp):
        first = 1 + len(op.carried)
        captured = used_operands([op.block], op.captured, first + len(op.scanned))
        scanned = used_operands([op.block], op.scanned, first)
        if len(captured) + len(scanned) == len(op.captured) + len(op.scanned):
            return False
        made: Control = _loop(op, op.carried, scanned, captured)
    else:
        assert isinstance(op, CondOp), f"{op.name} has bodies of an unknown kind"
        captured = used_operands(list(op.bodies()), op.captured)
        if len(captured) == len(op.captured):
            return False
        made = _cond(op, captured)
    _replace(op, made, [True] * len(op.results))
    return True


def _prune_loop_results(op: LoopOp) -> bool:
    carried, rows = _live_carried(op), [bool(result.uses) for result in op.stacked]
    if all(carried) and all(rows):
        return False
    go = [True] if op.go is not None else []
    _yield_only(op.block, [*go, *carried, *rows])
    region_dce(op.body)
    for argument, wanted in zip(op.carried_arguments, carried, strict=True):
        if not wanted:
            op.block.erase_arg(argument)
    made = _loop(op, list(compress(op.carried, carried)), op.scanned, op.captured)
    _replace(op, made, [*carried, *rows])
    return True


def _live_carried(op: LoopOp) -> list[bool]:
    """For each carried value whether its final, or anything else that is read, depends on it."""
    rows = zip(op.yielded_rows, op.stacked, strict=True)
    roots = [row for row, stacked in rows if stacked.uses]
    if op.yielded_go is not None:
        roots.append(op.yielded_go)
    live = [bool(final.uses) for final in op.finals]
    while True:
        read = values_behind([*roots, *compress(op.yielded_carried, live)])
        now = [
            known or argument in read
            for known, argument in zip(live, op.carried_arguments, strict=True)
        ]
        if now == live:
            return live
        live = now


def _yield_only(block: Block, wanted: Iterable[bool]) -> None:
    end = yield_of(block)
    values = list(compress(end.values, wanted))
    Rewriter.erase_op(end)
    block.add_op(YieldOp(values))


def _cond(op: CondOp, captured: Sequence[SSAValue]) -> CondOp:
    then, otherwise = (op.detach_region(region) for region in list(op.regions))
    return CondOp(op.predicate, captured, then, otherwise)


def _loop(
    op: LoopOp,
    carried: Sequence[SSAValue],
    scanned: Sequence[SSAValue],
    captured: Sequence[SSAValue],
) -> LoopOp:
    """The same body with other operands."""
    return LoopOp(
        op.turns,
        op.detach_region(op.body),
        carried=carried,
        scanned=scanned,
        captured=captured,
        go=op.go,
        limit=op.limit,
        reverse=op.reverse is not None,
    )


def _replace(old: Control, new: Control, kept: Iterable[bool]) -> None:
    """Puts one in place of another that has more results."""
    new.location = old.location
    new.attributes = dict(old.attributes)
    results: list[OpResult] = list(compress(old.results, kept))
    Rewriter.insert_op(new, InsertPoint.before(old))
    for before, after in zip(results, new.results, strict=True):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    Rewriter.erase_op(old)


def prune(root: Operation) -> bool:
    """Prunes the branches and loops inside an operation; whether there was anything to do."""
    results = [prune_results(op) for op in _controls(root)]
    operands = [prune_operands(op) for op in _controls(root)]
    return any(results) or any(operands)


def _controls(root: Operation) -> list[Control]:
    """Users before what they use."""
    return [op for op in root.walk(reverse=True) if isinstance(op, Control)]
