"""Scopes and name resolution, with suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    Assignment,
    Expression,
    For,
    Freeze,
    Missing,
    Name,
    Region,
    Span,
    Statement,
)
from popgraph.dialects.onnx.types import Dim
from popgraph.support.names import closest

Meaning = SSAValue | Expression | None
"""A value of the graph, or a constant; None if the definition failed."""


class Scope:
    """
    Name resolution in text order; inner scopes see outer ones.

    A name whose statement failed is defined without a meaning: using it fails silently. `carries`
    is true in the body of a `for`, where outer names may be reassigned; in the body of a `loop`,
    only the `states` may, which its parent holds. A block assigns to `results`, the names to the
    left of `=`, even if outer names have them. `dims` are dimensions bound by the arguments of a
    call. `outputs` are names of the graph that a `for` may define, once.
    """

    def __init__(
        self,
        source: Source,
        parent: Scope | None = None,
        *,
        carries: bool = False,
        states: Collection[str] | None = None,
        results: Collection[str] = (),
        outputs: Collection[str] = (),
    ) -> None:
        self.source = source
        self.parent = parent
        self.carries = carries
        self.states = states
        self.results = results
        self.outputs = outputs
        self.dims: dict[str, Dim] = {}
        self._meanings: dict[str, Meaning] = {}
        self._defined: dict[str, Span] = {}
        self._coming: dict[str, Span] = {}

    def announce(self, statements: Iterable[Statement]) -> None:
        """Records the names that will be defined, and their positions."""
        for statement in statements:
            for name in defined_by(statement):
                self._coming.setdefault(name.text, name.span)

    def taken(self, name: str) -> bool:
        """Whether the text defines this name."""
        return self._taken_here(name) or (self.parent is not None and self.parent.taken(name))

    def _taken_here(self, name: str) -> bool:
        return name in self._coming or name in self._meanings

    def defined_here(self, name: str) -> bool:
        """Whether this scope itself, not an outer one, defines the name."""
        return name in self._meanings

    def names(self) -> list[Name]:
        """The names that this scope itself defines."""
        return [Name(span, name) for name, span in self._defined.items() if self._meanings[name]]

    def definition_span(self, name: str) -> Span:
        """The position of a name's definition."""
        return self._scope_of(name)._defined[name]

    def _scope_of(self, name: str) -> Scope:
        """The innermost scope that defines a name; this one if none does."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._meanings:
                return scope
            scope = scope.parent
        return self

    def define(self, name: Name, meaning: Meaning, kind: str = "") -> None:
        """
        Defines a name; the meaning is None if its statement failed.

        With a `kind`, such as "weight", a name that is never used is reported.
        """
        carrier = self._carrier(name.text)
        is_outer = name.text in carrier._meanings or name.text in carrier.outputs
        home = carrier if is_outer else self
        home._meanings[name.text] = meaning
        home._defined[name.text] = name.span
        self.source.meanings[name.span] = (name.span, meaning)
        if kind and meaning is not None:
            self.source.defined[name.span] = (name.text, kind)

    def _carrier(self, name: str) -> Scope:
        """The scope, this or an outer one, in which the name would be reassigned."""
        scope = self
        while name not in scope._meanings and scope.parent is not None:
            if not scope.carries and name not in (scope.states or ()):
                break
            scope = scope.parent
        return scope

    def check_new(self, name: Name) -> None:
        """Fails if the name is already defined and may not be reassigned."""
        home = self._scope_of(name.text)
        if name.text not in home._defined:
            return
        is_output = name.text in home.outputs
        if home is not self and not is_output and self._may_define(name.text, home):
            return
        if home is self or is_output:
            self.source.parse_error(
                name.span,
                f"`{name.text}` is defined twice",
                f"the first time in line {home._defined[name.text].line}; every value needs a "
                "unique name",
            )
        else:
            self.source.parse_error(
                name.span,
                f"`{name.text}` would hide the one of line {home._defined[name.text].line}",
                f"a loop carries what it names: `with {name.text} = ...`"
                if self._in_loop(home)
                else "every value needs a unique name",
            )
        raise Failed

    def _may_define(self, name: str, home: Scope) -> bool:
        """Whether a name of an outer scope may be assigned here."""
        if name in self.results or home is self._carrier(name):
            return True
        return self.carries and not self._in_loop(home)

    def _in_loop(self, outer: Scope) -> bool:
        """Whether a `loop` body lies between this scope and an outer one."""
        scope: Scope | None = self
        while scope is not None and scope is not outer:
            if scope.states is not None:
                return True
            scope = scope.parent
        return False

    def value(self, name: Name) -> SSAValue:
        """The value of a name; fails if it has none."""
        meaning = self.meaning(name)
        assert isinstance(meaning, SSAValue), "the known value replaced it"
        return meaning

    def meaning(self, name: Name) -> SSAValue | Expression:
        """The meaning of a name; fails if it has none."""
        home = self._scope_of(name.text)
        if name.text not in home._meanings:
            self.source.parse_error(name.span, *self._unknown(name))
            raise Failed
        self.source.used.add(home._defined[name.text])
        meaning = home._meanings[name.text]
        self.source.meanings[name.span] = (home._defined[name.text], meaning)
        if meaning is None:
            raise Failed
        return meaning

    def use(self, names: Iterable[Name | Missing]) -> None:
        """Marks results of a `def` as used, even if this call ignores some."""
        for name in names:
            if isinstance(name, Name) and name.text in (home := self._scope_of(name.text))._defined:
                self.source.used.add(home._defined[name.text])

    def known(self, name: Name) -> Expression | None:
        """The constant value of a name, if it has one."""
        home = self._scope_of(name.text)
        meaning = home._meanings.get(name.text)
        if meaning is None or isinstance(meaning, SSAValue):
            return None
        self.source.used.add(home._defined[name.text])
        self.source.meanings[name.span] = (home._defined[name.text], meaning)
        return meaning

    def dim(self, name: str) -> Dim:
        """The value bound to a dimension name; the name itself if unbound."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.dims:
                return scope.dims[name]
            scope = scope.parent
        return name

    def closest(self, name: str) -> str:
        """The most similar known name; empty if none is similar."""
        names: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            names += [*scope._meanings, *scope._coming]
            scope = scope.parent
        return closest(name, names, 0.5)

    def _unknown(self, name: Name) -> tuple[str, str]:
        place = self._coming.get(name.text)
        if place is not None and (place.line, place.column) > (name.span.line, name.span.column):
            return (
                f"`{name.text}` is used before it is defined",
                f"it is defined in line {place.line}",
            )
        if place is not None:
            return f"`{name.text}` is used in its own definition", "give the result another name"
        close = _OF_PYTHON.get(name.text) or self.closest(name.text)
        hint = f"did you mean `{close}`?" if close else "define it in a line before this one"
        return f"there is no value `{name.text}`", hint


_OF_PYTHON = {"True": "true", "False": "false", "None": "_"}
"""Python keywords and their `.pgraph` spelling."""


def defined_by(statement: Statement) -> list[Name]:
    """The names that a statement defines."""
    match statement:
        case Assignment():
            names = [target.name for target in statement.targets]
            return [name for name in names if not isinstance(name, Missing)]
        case Region():
            return [name for inner in statement.body.statements for name in defined_by(inner)]
        case For() | Freeze():
            return []
        case _:
            return [statement.name]
