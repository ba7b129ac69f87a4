"""Lowers file-level definitions: constants, templates, functions, imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from popgraph.builder.pgraph.check.file_context import Definition, FileContext
from popgraph.builder.pgraph.check.imports import check_cycle, found, text_of_file
from popgraph.builder.pgraph.check.opset_versions import check_opsets, declared_opsets
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.functions import (
    calls_itself,
    count_calls,
    key_of,
    lower_function,
)
from popgraph.builder.pgraph.lower.rules import RULES
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.syntax.parser import parse_file
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import File, Function, Import, Name, Static, Template
from popgraph.dialects.onnx.writer import FunctionKey, GraphWriter
from popgraph.support.names import closest


def settle(context: FileContext, file: File) -> None:
    """Fills the context of a file with its definitions."""
    writer = GraphWriter(context.opsets, context.store)
    outside = GraphContext(context, writer, context.scope, RULES)
    for item in file.items:
        try:
            match item:
                case Static():
                    _check_no_template(context, item.name)
                    lower_statements(outside, [item])
                case Template():
                    _define(context, item.name, Definition(item, context))
                case Import():
                    _import(context, item)
        except Failed:
            continue
    _functions(context, [item for item in file.items if isinstance(item, Function)])


def _define(context: FileContext, name: Name, definition: Definition) -> None:
    known = context.definitions.get(name.text)
    if known is not None and known.template is definition.template:
        return
    context.scope.check_new(name)
    _check_no_template(context, name)
    context.definitions[name.text] = definition


def _check_no_template(context: FileContext, name: Name) -> None:
    if name.text not in context.definitions:
        return
    first = context.definitions[name.text]
    place = f"line {first.template.name.span.line}"
    if first.context.source is not context.source:
        place += f" of {first.context.source.filename}"
    context.source.parse_error(
        name.span, f"`{name.text}` is defined twice", f"the first time in {place}"
    )
    raise Failed


def _import(context: FileContext, item: Import) -> None:
    """Imports definitions of another file: all of them, or the listed names."""
    other = _context_of(context, item)
    own = {
        name: definition
        for name, definition in other.definitions.items()
        if definition.context.source is other.source
    }
    values = {name.text: name for name in other.scope.names() if name.text not in other.borrowed}
    everything = [Name(item.file.span, name) for name in (*values, *own)]
    for name in item.names if item.names is not None else everything:
        try:
            if name.text in own:
                _define(context, name, own[name.text])
            elif name.text in values:
                _check_no_template(context, name)
                context.scope.check_new(name)
                context.scope.define(name, other.scope.known(values[name.text]))
                context.borrowed.add(name.text)
            else:
                _unknown_import(context, item, name, [*own, *values])
        except Failed:
            continue


def _unknown_import(context: FileContext, item: Import, name: Name, known: Sequence[str]) -> None:
    close = closest(name.text, known, 0.5)
    listed = ", ".join(known) or "nothing"
    context.source.parse_error(
        name.span,
        f"{item.file.value!r} does not define `{name.text}`",
        f"did you mean `{close}`?" if close else f"it defines {listed}",
    )
    raise Failed


def _context_of(context: FileContext, item: Import) -> FileContext:
    """The context of an imported file, which is read once."""
    path = found(context, item)
    check_cycle(context, item, path)
    key = path.resolve()
    if key not in context.files:
        text = text_of_file(context, item, path)
        source = context.source.imported(text, str(path))
        file = parse_file(source)
        theirs = declared_opsets(source, file.opsets)
        check_opsets(context.source, item, context.opsets, theirs)
        other = replace(
            context,
            source=source,
            scope=Scope(source),
            definitions={},
            borrowed=set(),
            called=set(),
            reading=(*context.reading, key),
        )
        settle(other, file)
        context.files[key] = other
    return context.files[key]


def _functions(context: FileContext, functions: list[Function]) -> None:
    """Declares all functions before any is lowered, since each may call any other."""
    keyed: dict[FunctionKey, Function] = {}
    for function in functions:
        key = key_of(context, function)
        if key in keyed:
            context.source.parse_error(
                function.span,
                f"`{function.path.text}` is defined twice",
                f"the first time in line {keyed[key].span.line}",
            )
        else:
            keyed[key] = function
    context.calls.update(keyed)
    count_calls(context, keyed)
    for key, function in keyed.items():
        if calls_itself(context, key, keyed):
            context.source.parse_error(
                function.span,
                f"`{function.path.text}` calls itself",
                "ONNX has no recursion; `Loop` repeats a graph",
            )
            continue
        opsets = context.opsets
        if function.opsets:
            opsets = declared_opsets(context.source, function.opsets)
        lower_function(context.using(opsets), key, function)
