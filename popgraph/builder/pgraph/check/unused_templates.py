"""Checks the names and operators in templates that nothing calls."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.operators import is_operator, operator_of
from popgraph.builder.pgraph.check.scope import Scope, defined_by
from popgraph.builder.pgraph.syntax.literals import is_dtype
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Annotation,
    Argument,
    Assignment,
    Binary,
    Block,
    Branches,
    Call,
    Constant,
    For,
    Formal,
    Graph,
    Loop,
    Missing,
    Name,
    Node,
    Parameter,
    Path,
    Region,
    Static,
    Target,
    Template,
    Type,
    Weight,
    children,
    left_spine,
)


def check_unused_templates(context: FileContext) -> None:
    """Reports undefined names in the templates of this file that were not called."""
    for name, definition in context.definitions.items():
        if definition.context.source is context.source and name not in context.called:
            _Reader(context).template(definition.template)


class _Reader:
    """Walks statements; names have positions, but no values."""

    def __init__(self, context: FileContext) -> None:
        self.context = context
        self.scope = Scope(context.source, context.scope)

    def template(self, template: Template) -> None:
        for formal in template.formals:
            self.define(_dims(formal))
            self.define([formal.name])
        self.block(template.body)
        for target in template.outputs:
            if isinstance(target.name, Name):
                self.name(target.name)

    def define(self, names: Iterable[Name]) -> None:
        for name in names:
            self.scope.define(name, None)

    def block(self, block: Block) -> None:
        self.scope.announce(block.statements)
        for statement in block.statements:
            match statement:
                case For():
                    self.node(statement.range)
                    self.inside(statement.targets, statement.body, carries=True)
                case Region():
                    self.block(statement.body)
                case Assignment() | Static():
                    self.node(statement.value)
                    self.define(defined_by(statement))
                case Weight() | Constant():
                    self.define(defined_by(statement))
                case _:
                    pass

    def inside(
        self,
        names: Iterable[Target | Parameter],
        body: Block,
        *,
        carries: bool = False,
    ) -> None:
        """Reads a block in a scope of its own."""
        outer = self.scope
        self.scope = Scope(self.context.source, outer, carries=carries)
        self.define(one.name for one in names if isinstance(one.name, Name))
        self.block(body)
        self.scope = outer

    def loop(self, loop: Loop) -> None:
        """Reads the head of a loop, then its block; a condition may use the states."""
        for scanned in loop.scanned:
            self.node(scanned.range)
        for state in loop.states:
            if not isinstance(state.value, Missing):
                self.node(state.value)
        outer = self.scope
        self.scope = Scope(self.context.source, outer)
        names = [*(one.name for one in loop.scanned), *(one.name for one in loop.states)]
        self.define(name for name in names if isinstance(name, Name))
        if loop.condition is not None:
            self.node(loop.condition)
        self.inside((), loop.body, carries=True)
        self.scope = outer

    def node(self, node: Node) -> None:
        match node:
            case Name():
                self.name(node)
            case Call():
                self.call(node)
            case Graph():
                self.inside(node.inputs, node.body)
            case Branches():
                self.node(node.condition)
                self.inside((), node.then)
                if isinstance(node.otherwise, Branches):
                    self.node(node.otherwise)
                else:
                    self.inside((), node.otherwise)
            case Loop():
                self.loop(node)
            case Argument(value=value):
                if not isinstance(value, Missing):
                    self.node(value)
            case Type() | Annotation() | Path():
                pass
            case Binary():
                spine = left_spine(node)
                self.node(spine[-1].lhs)
                for outer in reversed(spine):
                    self.node(outer.rhs)
            case _:
                for child in children(node):
                    self.node(child)

    def call(self, call: Call) -> None:
        path = call.path
        parameter = len(path.parts) == 1 and self.scope.taken(path.text)
        template = self.context.template(path)
        if not parameter and template is None and not is_dtype(path.text):
            with suppress(Failed):
                functions = self.context.calls
                operator_of(self.context.source, path, self.context.opsets, functions)
        for argument in call.arguments:
            self.node(argument)

    def name(self, name: Name) -> None:
        known = name.text in self.context.definitions or is_operator(name.text)
        if known or is_dtype(name.text):
            return
        with suppress(Failed):
            self.scope.meaning(name)


def _dims(formal: Formal) -> list[Name]:
    """The names of dimensions in the type of a parameter, which are defined inside."""
    if not isinstance(formal.type, Type):
        return []
    return [dim for dim in formal.type.dims or () if isinstance(dim, Name)]
