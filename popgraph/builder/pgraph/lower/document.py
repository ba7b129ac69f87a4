"""The compiler of `.pgraph` texts: parse, check, lower; the result is a document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.budget import BudgetExceeded
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.graph_notes import ModelNotes
from popgraph.builder.pgraph.check.imports import folders
from popgraph.builder.pgraph.check.opset_versions import opset_versions
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.check.unused_templates import check_unused_templates
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.definitions import settle
from popgraph.builder.pgraph.lower.graphs import lower_graph
from popgraph.builder.pgraph.lower.inner_graphs import written
from popgraph.builder.pgraph.lower.numbered_names import with_each
from popgraph.builder.pgraph.lower.schedules import Schedule, schedule_of
from popgraph.builder.pgraph.lower.training import (
    OptimizerCall,
    TrainingSection,
    lower_training,
    optimizer_call,
)
from popgraph.builder.pgraph.syntax.parser import parse_expression, parse_file
from popgraph.builder.pgraph.syntax.source import TOO_DEEP, Failed, Source
from popgraph.builder.pgraph.syntax.text_files import read_text
from popgraph.builder.pgraph.syntax.tree import File, Function, Graph, Span, Static, Template, Train
from popgraph.dialects.program import WeightStore
from popgraph.support.checkpoints import Checkpoint
from popgraph.support.errors import ParseError, PopgraphError
from popgraph.support.files import state_or_absent
from popgraph.support.garbage import without_collection

_GRAPH = "`graph name(x: f32[N, 3]) -> y { ... }`"


@dataclass(frozen=True)
class Document:
    """The graphs of a text, one module each, and their training sections."""

    graphs: dict[str, ModuleOp]
    weights: WeightStore
    trainings: dict[str, TrainingSection]
    """Training sections by graph name."""
    opsets: dict[str, int]
    """Operator set versions by domain; the standard domain is ""."""
    warnings: tuple[ParseError, ...] = ()
    """Warnings, such as a weight that nothing uses."""
    filename: str = ""

    @property
    def module(self) -> ModuleOp:
        """The first graph; ParseError if the text only has definitions."""
        if not self.graphs:
            raise ParseError("this text has no graph", self.filename, _GRAPH)
        return next(iter(self.graphs.values()))

    @property
    def training(self) -> TrainingSection | None:
        """The training section of the first graph, if any."""
        return next((self.trainings.get(name) for name in self.graphs), None)


def parse(
    text: str,
    filename: str = "<text>",
    search: Iterable[str | Path] = (),
    weights: Checkpoint | None = None,
) -> Document:
    """
    Compiles a text; `load` reads from `weights`, unless the text names a file.

    Raises ParseError or TypeMismatchError, or an ErrorGroup with all errors. Weight files are
    searched beside `filename`; imports also in `search` and in the environment's POPGRAPH_PATH.
    """
    try:
        with without_collection():
            return _parse(Source(text, filename), folders(search), weights)
    except RecursionError as error:
        raise ParseError(TOO_DEEP[0], filename, TOO_DEEP[1]) from error


def _parse(source: Source, search: tuple[Path, ...], weights: Checkpoint | None = None) -> Document:
    try:
        return _read(source, search, weights)
    except BudgetExceeded:
        source.raise_mistakes()
        raise


def _read(source: Source, search: tuple[Path, ...], weights: Checkpoint | None) -> Document:
    file = parse_file(source)
    context = FileContext(
        source,
        opset_versions(source, file.opsets),
        WeightStore(),
        Scope(source),
        search=search,
        reading=(Path(source.filename).resolve(),),
    )
    if weights is not None:
        context = context.loading(weights)
    settle(context, file)
    _check_graphs(source, file)
    file = _with_each(context, file)
    named = {graph.name.text: graph for graph in file.graphs if graph.name}
    lowered = {name: lower_graph(context, graph) for name, graph in named.items()}
    trainings = _trainings(context, file)
    check_unused_templates(context)
    source.raise_mistakes()
    graphs = {name: _module(file, lowered[name]) for name in named}
    # What a text without graphs defines is for others.
    warnings = tuple(warning for _, warning in source.warnings() if graphs)
    return Document(graphs, context.store, trainings, context.opsets, warnings, source.filename)


def _with_each(context: FileContext, file: File) -> File:
    items = (with_each(context, item) if isinstance(item, Graph) else item for item in file.items)
    return replace(file, items=tuple(items))


def check(source: Source, search: Iterable[str | Path] = ()) -> Document | None:
    """Compiles a text; None if it has errors, which the source then holds."""
    try:
        with without_collection():
            return _parse(source, folders(search))
    except RecursionError:
        source.parse_error(Span(1, 1, 1, 2), *TOO_DEEP)
    except PopgraphError as error:
        if not source.mistakes:
            source.note(Span(1, 1, 1, 2), error)
    return None


def load(path: str | Path, search: Iterable[str | Path] = ()) -> Document:
    """Compiles a file; see `parse`. Its weights record all files that were read."""
    before = state_or_absent(Path(path))
    document = parse(read_text(path), str(path), search)
    document.weights.files[Path(path).resolve()] = before
    return document


def parse_optimizer(text: str) -> OptimizerCall:
    """Parses an optimizer such as `SGD(0.1, momentum=0.9)`."""
    source = Source(text, "<optimizer>")
    try:
        return optimizer_call(source, parse_expression(source))
    except (Failed, BudgetExceeded):
        source.raise_mistakes()
        raise


def parse_schedule(text: str) -> Schedule:
    """Parses a schedule such as `cosine(steps=1000, warmup=100)`."""
    source = Source(text, "<schedule>")
    try:
        found = schedule_of(source, parse_expression(source), Scope(source))
        source.raise_mistakes()
    except (Failed, BudgetExceeded):
        source.raise_mistakes()
        raise
    return found


def _check_graphs(source: Source, file: File) -> None:
    defines = any(isinstance(item, Template | Static | Function) for item in file.items)
    if not file.graphs and (file.trains or not defines):
        source.parse_error(Span(1, 1, 1, 2), "there is no graph here", _GRAPH)
    seen: set[str] = set()
    for graph in file.graphs:
        if graph.name is None:
            source.parse_error(graph.span, "a graph of a file needs a name", "`graph name(...)`")
        elif graph.name.text in seen:
            source.parse_error(graph.span, f"there are two graphs `{graph.name.text}`")
        else:
            seen.add(graph.name.text)
    source.raise_mistakes()


def _trainings(context: FileContext, file: File) -> dict[str, TrainingSection]:
    found: dict[str, TrainingSection] = {}
    for train in file.trains:
        graph = _trained(context.source, file, train)
        if graph is None or graph.name is None:
            continue
        if graph.name.text in found:
            context.source.parse_error(
                train.span, f"graph `{graph.name.text}` has a `train` section already"
            )
            continue
        section = lower_training(context, graph, train)
        if section is not None:
            found[graph.name.text] = section
    return found


def _trained(source: Source, file: File, train: Train) -> Graph | None:
    if train.graph is None:
        return file.graphs[0]
    for graph in file.graphs:
        if graph.name is not None and graph.name.text == train.graph.text:
            return graph
    names = ", ".join(f"`{graph.name.text}`" for graph in file.graphs if graph.name)
    source.parse_error(
        train.graph.span, f"there is no graph `{train.graph.text}`", f"this text has {names}"
    )
    return None


def _module(file: File, lowered: GraphContext) -> ModuleOp:
    notes = lowered.about
    assert isinstance(notes, ModelNotes), "graphs of a file become models"
    return lowered.writer.module(
        ir_version=notes.ir_version, about=notes.attributes(file.doc), graph=written(lowered)
    )
