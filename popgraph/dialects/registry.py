"""Registers the dialects that IR text may use, each loaded on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from warnings import warn

from xdsl.context import Context
from xdsl.ir import Dialect, Operation

from popgraph.support.extensions import OPERATORS, load_all
from popgraph.support.warnings import PopgraphWarning


def _pg() -> Dialect:
    from popgraph.dialects.program import PG

    return PG


def _onnx(name: str) -> Callable[[], Dialect]:
    """One of the dialects of ONNX's four standard domains."""

    def factory() -> Dialect:
        from popgraph.dialects.onnx import dialect

        return dialect(name)

    return factory


def _graphcore() -> Dialect:
    from popgraph.dialects.graphcore import GRAPHCORE

    return GRAPHCORE


def _tile() -> Dialect:
    from popgraph.dialects.tile import TILE

    return TILE


OWN: dict[str, Callable[[], Dialect]] = {
    "pg": _pg,
    **{name: _onnx(name) for name in ("onnx", "onnx_ml", "onnx_preview", "onnx_training")},
    "graphcore": _graphcore,
    "tile": _tile,
}


def _stock() -> dict[str, Callable[[], Dialect]]:
    def load(module: str, name: str) -> Callable[[], Dialect]:
        def factory() -> Dialect:
            from importlib import import_module

            dialect = getattr(import_module(f"xdsl.dialects.{module}"), name)
            assert isinstance(dialect, Dialect)
            return dialect

        return factory

    names = {
        "builtin": "Builtin",
        "func": "Func",
        "arith": "Arith",
        "complex": "Complex",
        "math": "Math",
        "memref": "MemRef",
        "scf": "Scf",
        "vector": "Vector",
    }
    return {module: load(module, name) for module, name in names.items()}


def register(context: Context) -> None:
    """Registers every dialect; each is imported when its first operation is parsed."""
    for name, factory in (_stock() | OWN).items():
        context.register_dialect(name, factory)


class IRContext(Context):
    """The context of IR texts: every dialect, and operations from plugins once a text names one."""

    def __init__(self) -> None:
        super().__init__()
        register(self)

    def get_optional_op(
        self, name: str, *, dialect_stack: Sequence[str] = ()
    ) -> type[Operation] | None:
        """xDSL's lookup; plugin distributions are loaded only for a name that is still unknown."""
        found = super().get_optional_op(name, dialect_stack=dialect_stack)
        if found is None and "." in name:
            self._register_outside()
            found = super().get_optional_op(name, dialect_stack=dialect_stack)
        return found

    def _register_outside(self) -> None:
        from popgraph.dialects.graphcore.outside import outside_dialects

        for error in load_all(OPERATORS):
            warn(f"{error}", PopgraphWarning, stacklevel=2)
        for name, dialect in outside_dialects().items():
            if name not in self.registered_dialect_names:
                # Not a lambda: it would read `dialect` after the loop has ended.
                self.register_dialect(name, partial(_identity, dialect))


def _identity(dialect: Dialect) -> Dialect:
    return dialect
