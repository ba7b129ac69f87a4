"""`popgraph print`: prints a model at a level of the IR, or as C."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from popgraph.cli.options import (
    LEVELS_AND_C,
    Activations,
    ActivationsChoice,
    Device,
    ExtraPasses,
    Folders,
    IndicesChoice,
    Level,
    Load,
    ModelFile,
    Ranges,
    ScheduleFile,
    Switch,
    Threads,
    Train,
    Tuned,
    Values,
    Winograd,
    ipu_of,
    level,
    options_here,
    pass_name,
)
from popgraph.cli.pager import show

if TYPE_CHECKING:
    from popgraph.compiler import BuildRequest
    from popgraph.passes.changes import Changes


def _passes_to_compare(text: str) -> str:
    """Current names of passes; BadParameter for an unknown one."""
    return text if text == "all" else "..".join(pass_name(one) for one in text.split("..", 1))


def command(
    model: ModelFile,
    at: Annotated[
        Level, typer.Option(parser=level, metavar=LEVELS_AND_C, help="IR level to print.")
    ] = Level.ONNX,
    stop_after: Annotated[
        str | None,
        typer.Option(
            parser=pass_name, metavar="PASS", help="Print the module after this pass instead."
        ),
    ] = None,
    print_after: Annotated[
        list[str] | None,
        typer.Option(
            parser=pass_name,
            metavar="PASS",
            help="Also print the module after this pass (repeatable).",
        ),
    ] = None,
    diff: Annotated[
        list[str] | None,
        typer.Option(
            parser=_passes_to_compare,
            metavar="PASS|A..B|all",
            help="Print the diff of this pass instead, of A to B, or of every pass.",
        ),
    ] = None,
    elide: Annotated[
        bool, typer.Option(help="Elide elements of large constants and ends of long lists.")
    ] = False,
    dim: Ranges = None,
    value: Values = None,
    winograd: Winograd = Switch.ON,
    activations: ActivationsChoice = Activations.FLOAT,
    schedule: ScheduleFile = None,
    tuned: Tuned = Switch.ON,
    indices: IndicesChoice = None,
    threads: Threads = 1,
    train: Train = False,
    device: Device = None,
    extra: ExtraPasses = None,
    load: Load = None,
    folders: Folders = None,
) -> None:
    """
    Print a model as IR of any level, or as C.

    \b
    popgraph print model.onnx                              as it was written
    popgraph print model.onnx --at graphcore --dim N=4     what is computed
    popgraph print model.onnx --at structured --dim N=4    how: layouts, schedules
    popgraph print model.onnx --at program --dim N=4       how: kernels, buffers
    popgraph print model.onnx --at c --dim N=4             the C
    popgraph print model.onnx --stop-after normalize       after a pass
    popgraph print model.onnx --at c --value shape=2,3     of an input that decides structure
    popgraph print net.pgraph --train --dim N=4 --stop-after autodiff
    popgraph print model.onnx --at structured --dim N=4 --elide --diff all
    popgraph print model.onnx --at graphcore --dim N=4 --diff expand..dce
    popgraph print model.onnx --at structured --device ipu --elide    the tiles

    For a model with host steps, comments list the steps with the reasons; below the onnx level,
    every compiled segment is printed. Data-dependent sizes are those that random inputs produce.
    Comments also list the structural inputs of a model, and the values, shapes and size ranges of
    its compiled programs in the cache.

    Elided text is for reading; it does not parse. With --diff, passes run down to --at, or to the
    program level. A terminal shows colours, unless NO_COLOR is set, and long texts in PAGER.
    """
    from popgraph import compiler
    from popgraph.backends.registry import DEFAULT
    from popgraph.cli import models, print_steps
    from popgraph.dialects.program.sizes import sizes_of

    ipu = ipu_of(device)
    if ipu is not None and at not in (Level.ONNX, Level.GRAPHCORE, Level.STRUCTURED):
        raise typer.BadParameter("tiles exist at the structured level only", param_hint="--at")
    diff, at = diff or [], Level.PROGRAM if diff and at in (Level.ONNX, Level.C) else at
    lowered = at != Level.ONNX or bool(stop_after)
    module, compilation, step = models.opened(
        model, dim, value, train=train, static=lowered, ranged=True
    )
    made = options_here(winograd, schedule, tuned, threads, indices, extra, activations)
    made = models.with_step(made, step)
    if ipu is not None:
        from popgraph.ipu.map_to_tiles import on_ipus

        made = on_ipus(made, ipu)
    request = compiler.BuildRequest(module, compilation, made, "reference", 1)
    hosted = models.is_hosted(module, trained=step is not None)
    if not lowered:
        trained = step is not None  # Such models have steps, but no training.
        notes = print_steps.step_lines(request.copy()) if hosted and not trained else ()
        lines = [*notes, *models.program_lines(model, module, compilation), str(module)]
        show(PrintRequest(at, None, (), elide=elide).shown("\n".join(lines)))
        return
    if sizes_of(module):  # A program that runs for some sizes only is not to be looked at.
        trial = replace(request.copy(), backend=DEFAULT)
        models.lower_to_sizes(trial, model, dim, value, train=train)
    asked = PrintRequest(at, stop_after, print_after or (), tuple(diff), elide)
    texts = print_steps.lowered_steps if hosted else print_steps.lowered_whole
    show("\n".join(asked.shown(text) for text in texts(request, asked.text)))


@dataclass
class PrintRequest:
    """The output requested for a module while it is lowered."""

    at: Level
    stop_after: str | None
    print_after: Sequence[str]
    diff: tuple[str, ...] = ()
    elide: bool = False
    seen: set[str] = field(default_factory=set)
    """Headers already printed."""

    def text(self, request: BuildRequest) -> str:
        """Lowers a module in place and returns its text, or the changes by passes."""
        from popgraph import compiler
        from popgraph.backends.registry import DEFAULT, backend_named

        deepest = Level.PROGRAM if self.at == Level.C or self.stop_after else self.at
        observer = self._observer()
        compiler.lower(
            request.module,
            request.compilation,
            request.options,
            level=deepest.value,
            until=self.stop_after,
            observer=observer,
        )
        if self.diff:
            observer.check()
            return "\n".join(observer.found)
        if self.at != Level.C or self.stop_after:
            return str(request.module)
        tools = backend_named(DEFAULT).tools
        files = tools.sources(request.module, threads=request.options.threads)
        shown = [text for name, text in files.items() if name not in self.seen]
        self.seen |= {name for name in files if name.endswith(".h")}
        return "\n".join(shown)

    def _observer(self) -> Changes:
        from popgraph import compiler
        from popgraph.passes.changes import ALL, Changes, Stretch, elided
        from popgraph.support.debug import Settings

        return Changes(
            Settings.from_environment(),
            self.print_after,
            compiler.same_meaning,
            sys.stdout,
            stretches=tuple(Stretch.of(one) for one in self.diff if one != ALL),
            every=ALL in self.diff,
            text=(lambda module: elided(str(module))) if self.elide else str,
        )

    def shown(self, text: str) -> str:
        """Adds elision and colours to a text."""
        from popgraph.cli import colours
        from popgraph.passes.changes import elided

        is_c = self.at == Level.C and not self.stop_after
        if self.elide and not self.diff and not is_c:
            text = elided(text)
        if not colours.wanted():
            return text
        return colours.diff(text) if self.diff else (colours.c if is_c else colours.ir)(text)
