"""Lowers file-level definitions: constants, templates, functions of the model, imports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from xdsl.ir import Attribute

from popgraph.builder.pgraph.check.declared_types import declared_type
from popgraph.builder.pgraph.check.file_context import Definition, FileContext
from popgraph.builder.pgraph.check.graph_notes import GraphNotes, graph_notes
from popgraph.builder.pgraph.check.imports import check_cycle, found, text_of_file
from popgraph.builder.pgraph.check.operators import Operator, domain_of
from popgraph.builder.pgraph.check.opset_versions import check_opsets, declared_opsets
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.attribute_values import attribute_value
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold
from popgraph.builder.pgraph.lower.inputs_and_outputs import lower_inputs, lower_outputs
from popgraph.builder.pgraph.lower.rules import RULES
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.syntax.parser import parse_file
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Assignment,
    Call,
    File,
    Formal,
    Function,
    Import,
    Name,
    Node,
    Static,
    Template,
    Text,
    walk,
)
from popgraph.dialects.onnx.attributeproto import from_python, kind_of_attribute
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.metadata import written_function
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
    location = f"line {first.template.name.span.line}"
    if first.context.source is not context.source:
        location += f" of {first.context.source.filename}"
    context.source.parse_error(
        name.span, f"`{name.text}` is defined twice", f"the first time in {location}"
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


def key_of(context: FileContext, function: Function) -> FunctionKey:
    """Domain, name and overload of a function."""
    domain = ".".join(part.text for part in function.path.parts[:-1])
    return domain, function.path.parts[-1].text, _notes(context, function).overload


def calls_itself(
    context: FileContext, key: FunctionKey, functions: Mapping[FunctionKey, Function]
) -> bool:
    """Whether a function is recursive, directly or indirectly."""
    pending, seen = [key], set[FunctionKey]()
    while pending:
        function = functions.get(pending.pop())
        called = set() if function is None else set(_called(context, function.body))
        if key in called:
            return True
        pending += called - seen
        seen |= called
    return False


def count_calls(context: FileContext, functions: Mapping[FunctionKey, Function]) -> None:
    """Computes the number of calls that a call of each function expands to."""
    calls = {key: list(_called(context, one.body)) for key, one in functions.items()}
    begun = set[FunctionKey]()
    waiting = list(functions)
    while waiting:
        key = waiting[-1]
        inner = [one for one in calls[key] if one in functions]
        if key not in begun:
            begun.add(key)
            waiting += [one for one in inner if one not in begun]
            continue
        waiting.pop()
        context.unfolded[key] = 1 + sum(context.unfolded.get(one, 1) for one in inner)


def _called(context: FileContext, root: Node) -> Iterator[FunctionKey]:
    """The functions called within a node."""
    overloads: dict[int, str] = {}
    for node in walk(root):
        if isinstance(node, Assignment):
            overloads[id(node.value)] = _overload(node)
        if isinstance(node, Call):
            overload = overloads.get(id(node), "")
            yield domain_of(node.path, context.opsets), node.path.parts[-1].text, overload


def _overload(node: Node) -> str:
    for annotation in node.annotations if isinstance(node, Assignment) else ():
        match annotation.path.text, annotation.arguments:
            case "overload", [Argument(value=Text(value=text))]:
                return text
    return ""


def _notes(context: FileContext, function: Function) -> GraphNotes:
    return graph_notes(
        context.source, function.annotations, lambda one: one, function.body.doc, "function"
    )


def lower_function(file: FileContext, key: FunctionKey, function: Function) -> None:
    """Adds a function to the model; its values are untyped."""
    writer = GraphWriter(file.opsets, file.store, name=key[1], calls=file.calls, typed=False)
    scope = Scope(file.source, file.scope)
    context = GraphContext(file, writer, scope, RULES, is_inner=True)
    context = context.described(_notes(file, function))
    defaults = _defaults(context, function.attributes)
    context = replace(context, references=_references(function.attributes, defaults))
    lower_inputs(context, function.inputs)
    lower_statements(context, function.body.statements)
    lower_outputs(context, function.outputs)
    if writer.outputs is not None:
        infos = [*_declared(context, function.inputs), *context.infos]
        file.functions[key] = writer.function(
            *key,
            attributes=[one.name.text for one in function.attributes if one.default is None],
            defaults=defaults,
            infos=infos,
            rest=written_function(context.about.about),
        )


def _references(formals: Sequence[Formal], defaults: Mapping[str, Attribute]) -> dict[str, str]:
    """The attributes of a function, with their kinds if defaults determine them."""
    return {
        formal.name.text: kind_of_attribute(defaults[formal.name.text])
        if formal.name.text in defaults
        else ""
        for formal in formals
    }


def _defaults(context: GraphContext, formals: Sequence[Formal]) -> dict[str, Attribute]:
    file, found = context.file, dict[str, Attribute]()
    for formal in formals:
        if formal.default is None:
            continue
        name = formal.name
        try:
            operator = Operator(name.text, "")
            folded = fold(context, formal.default)
            value = attribute_value(file, operator, name, folded, context.scope)
            found[name.text] = from_python(name.text, value, None, file.store)
        except Failed:
            continue
    return found


def _declared(context: GraphContext, formals: Sequence[Formal]) -> list[ValueInfoAttr]:
    """The declared types of inputs."""
    infos = []
    for formal in formals:
        if formal.type is None:
            continue
        try:
            type_ = declared_type(context.source, formal.type, context.scope)
        except Failed:
            continue
        infos.append(ValueInfoAttr.of(formal.name.text, type_))
    return infos
