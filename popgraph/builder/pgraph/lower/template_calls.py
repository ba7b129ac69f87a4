"""Lowers calls of a `def`: binds its arguments and expands its body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.declared_types import check_dtype_of, declared_type
from popgraph.builder.pgraph.check.file_context import Definition
from popgraph.builder.pgraph.check.operators import is_operator
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.inputs_and_outputs import output_value
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.lower.tensor_literals import lower_literal
from popgraph.builder.pgraph.lower.value_names import call_label
from popgraph.builder.pgraph.syntax.literals import is_known
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    AnyType,
    Argument,
    Call,
    Expression,
    Formal,
    Missing,
    Name,
    Number,
    Span,
    Template,
    Type,
)
from popgraph.dialects.onnx.types import Dim, describe, dims
from popgraph.support.names import closest


def bind(
    caller: GraphContext, definition: Definition, call: Call, scope: Scope
) -> dict[str, Definition]:
    """
    Binds the parameters of a template, in the order of its head.

    Returns the templates among the arguments, under names unknown to the called template's file.
    """
    template = definition.template
    given = _given(caller, definition, call)
    passed: dict[str, Definition] = {}
    failed = False
    for formal in template.formals:
        try:
            meaning = _meaning(caller, definition, formal, given, scope, call)
            if isinstance(meaning, Name) and meaning.text in caller.file.definitions:
                argument = caller.file.definitions[meaning.text]
                meaning = Name(meaning.span, argument.full_name)
                passed[meaning.text] = argument
            scope.define(formal.name, meaning, "parameter")
        except Failed:
            failed = True
    if failed:
        raise Failed
    return passed


def _given(caller: GraphContext, definition: Definition, call: Call) -> dict[str, Argument]:
    """The arguments of a call by parameter."""
    formals = [formal.name.text for formal in definition.template.formals]
    given: dict[str, Argument] = {}
    for index, argument in enumerate(call.arguments):
        key = argument.keyword.text if argument.keyword else [*formals[index:], ""][0]
        if key not in formals:
            _not_taken(caller, definition, call, argument, formals)
        if key in given:
            caller.source.parse_error(argument.span, f"`{key}` is given twice")
            raise Failed
        given[key] = argument
    return given


def _not_taken(
    caller: GraphContext,
    definition: Definition,
    call: Call,
    argument: Argument,
    formals: list[str],
) -> None:
    name = definition.template.name.text
    if argument.keyword is None:
        count = len(formals)
        caller.source.parse_error(
            argument.span,
            f"`{name}` takes {count} argument{'s' * (count != 1)}, not {len(call.arguments)}",
            f"`{name}({', '.join(formals)})`",
        )
        raise Failed
    close = closest(argument.keyword.text, formals, 0.5)
    hint = f"did you mean `{close}`?" if close else f"it takes {', '.join(formals) or 'nothing'}"
    caller.source.parse_error(
        argument.keyword.span, f"`{name}` has no parameter `{argument.keyword.text}`", hint
    )
    raise Failed


def _meaning(
    caller: GraphContext,
    definition: Definition,
    formal: Formal,
    given: dict[str, Argument],
    scope: Scope,
    call: Call,
) -> SSAValue | Expression:
    argument = given.get(formal.name.text)
    if argument is None or isinstance(argument.value, Missing):
        if formal.default is None:
            caller.source.parse_error(
                call.path.span,
                f"`{definition.template.name.text}` needs `{formal.name.text}`",
                f"it is defined in line {definition.template.span.line} of "
                f"{definition.context.source.filename}",
            )
            raise Failed
        return folded(definition.context.source, formal.default, scope.known)
    found = fold(caller, argument.value)
    if formal.type is None:
        if is_known(found) or _names_operator(caller, found):
            return found
        return lower_value(caller, found)
    if is_known(found):
        dtype = formal.type.dtype.text if isinstance(formal.type, Type) else None
        passed = lower_literal(caller, found, dtype, None)
    else:
        passed = lower_value(caller, found)
    _unify(caller, definition, formal, formal.type, passed.type, scope, argument.span)
    return passed


def _names_operator(caller: GraphContext, found: Expression) -> bool:
    """Whether an argument names an operator or a template, for a parameter that is called."""
    return (
        isinstance(found, Name)
        and not caller.scope.taken(found.text)
        and (found.text in caller.file.definitions or is_operator(found.text))
    )


def _unify(
    caller: GraphContext,
    definition: Definition,
    formal: Formal,
    declared: AnyType,
    found: Attribute,
    scope: Scope,
    span: Span,
) -> None:
    """
    Unifies the dimension names of a parameter's type with the argument; fails if it does not fit.
    """
    sizes = dims(found)
    source = definition.context.source
    fits = True
    if isinstance(declared, Type) and declared.dims is not None and sizes is not None:
        if len(sizes) == len(declared.dims):
            pairs = zip(declared.dims, sizes, strict=True)
            settled = [_settled(source, dim, size, scope) for dim, size in pairs]
            fits = all(settled)
        else:
            fits = False
    wanted = declared_type(source, declared, scope)
    if not fits or not check_dtype_of(found, wanted):
        caller.source.mismatch(
            span,
            f"`{formal.name.text}` is {describe(wanted)}, but this is {describe(found)}",
            f"the head of `{definition.template.name.text}` says so",
        )
        raise Failed


def _settled(source: Source, dim: Expression, size: Dim, scope: Scope) -> bool:
    """Whether a dimension fits; an unbound name is bound to this size."""
    known = folded(source, dim, scope.known)
    if isinstance(known, Number):
        return not isinstance(size, int) or known.value == size
    if not isinstance(known, Name):
        return True
    if known.text in scope.dims:
        return scope.dims[known.text] is None or size is None or scope.dims[known.text] == size
    if isinstance(size, int):
        scope.define(known, Number(known.span, size))
    else:
        scope.dims[known.text] = size
    return True


MAX_CALLS = 80
"""Deepest nesting of `def` calls."""


def lower_template_call(
    context: GraphContext, definition: Definition, call: Call, names: Sequence[str] | None
) -> list[SSAValue]:
    """Inlines a `def`; returns its results."""
    template = definition.template
    definition.context.called.add(template.name.text)
    context.source.spend(call.path.span, ITERATION)
    _check_depth(context, definition, call)
    _check_result_count(context, template, call, names)
    scope = Scope(definition.context.source, definition.context.scope)
    passed = bind(context, definition, call, scope)
    known = {**definition.context.definitions, **passed}
    own = context.file
    label = call_label(context, template.name.text, names)
    given = [label] if names is None else names
    inner = GraphContext(
        replace(definition.context, opsets=own.opsets, definitions=known, weights=own.weights),
        context.writer,
        scope,
        context.rules,
        is_inner=context.is_inner,
        calls=(*context.calls, definition.full_name),
        prefix=label + "/",
        renamed=_renamed(template, given),
        notes=context.notes,
        node_names=context.node_names,
        infos=context.infos,
    )
    with context.source.calling(call.path.span):
        return _written_out(inner, template, given)


def _renamed(template: Template, given: Sequence[str]) -> dict[str, str]:
    """The caller's names of the results."""
    return {
        target.name.text: name
        for target, name in zip(template.outputs, given, strict=False)
        if isinstance(target.name, Name) and name
    }


def _written_out(inner: GraphContext, template: Template, given: Sequence[str]) -> list[SSAValue]:
    """Lowers the statements of a template; returns the results that have a name in `given`."""
    lower_statements(inner, template.body.statements)
    inner.scope.use(target.name for target in template.outputs)
    return [
        output_value(inner, target, set())
        for target, name in zip(template.outputs, given, strict=False)
        if name
    ]


def _check_depth(context: GraphContext, called: Definition, call: Call) -> None:
    """Fails if calls are nested too deeply."""
    if len(context.calls) < MAX_CALLS:
        return
    name = called.template.name.text
    what = f"calls of `def`s are nested more than {MAX_CALLS} levels deep"
    hint = "inline some of them, or let the graph call them in sequence"
    if called.full_name in context.calls:
        what, hint = f"`{name}` calls itself endlessly", ""
    context.source.parse_error(call.path.span, what, hint)
    raise Failed


def _check_result_count(
    context: GraphContext, template: Template, call: Call, names: Sequence[str] | None
) -> None:
    """Fails if a call requests more results than there are."""
    count = len(template.outputs)
    if names is None or len(names) <= count:
        return
    results = "one result" if count == 1 else f"{count} results"
    context.source.parse_error(
        call.path.span, f"`{template.name.text}` has {results}, not {len(names)}"
    )
    raise Failed
