"""The command `popgraph`: what it can do, and how it ends."""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from popgraph.cli.completion import VARIABLE, answer
from popgraph.cli.options import Load
from popgraph.cli.report import show_error
from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest
from popgraph.support.ranks.launched import is_launched
from popgraph.support.signals import ending_at_once
from popgraph.support.spelling import as_options

COMMANDS = (
    "print",
    "info",
    "view",
    "run",
    "generate",
    "train",
    "convert",
    "check",
    "fmt",
    "lsp",
    "bench",
    "profile",
    "scale",
    "schedules",
    "tune",
    "emit",
    "export",
    "opt",
    "bisect",
    "passes",
    "ops",
    "popart",
    "conformance",
    "doctor",
    "completion",
)
"""One module each, in the order in which `--help` lists them."""

ABOUT = """
Compile ONNX and .pgraph models to C, run them, train them, and look at every step between.

\b
First steps:
  popgraph run model.onnx --random             run a model on random inputs
  popgraph run model.onnx -i x=x.npy -o y=y.npy
  popgraph info model.onnx                     inputs, outputs, size, cost
  popgraph view model.onnx                     all of it in the browser
  popgraph print model.pgraph --at graphcore   what is computed
  popgraph print model.pgraph --at c           the C that runs
  popgraph train net.pgraph x=x.npy labels=labels.npy --epochs 5 -o trained.onnx
  popgraph doctor                              is a C compiler there?

\b
Models are .onnx files, .pgraph texts and .mlir files (IR of any level; below graphcore it is code).
POPGRAPH_DEBUG=1 shows every pass and its time; 2 the IR, 3 kernels, 4 the C.
POPGRAPH_PATH=lib:more (or -I lib) is where texts look for what they import.
--load my_passes.py imports what brings passes, operators or targets (docs/extend.md).
POPGRAPH_TARGET=avx2 (avx512, sse2, neon, native) makes code for such a machine.

Exit codes: 0 all is well, 1 the model or the data is wrong, 2 the command is.
"""


class CommandsByName(UserDict[str, Any]):
    """The commands; each module is imported when its command is looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(name)(import_module(f"popgraph.cli.{name}").command)
            self.data[name] = typer.main.get_command(alone)
        return self.data[name]


class Commands(TyperGroup):
    """Ends every command that fails with a message, not with a traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandsByName()

    def invoke(self, ctx: Any) -> Any:
        try:
            with _plain_warnings(), as_options():
                return super().invoke(ctx)
        except PopgraphError as error:
            if _debugging():
                raise
            show_error(error)
        except BrokenPipeError:
            # Whoever read our output has seen enough; Python must not complain about it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            if _debugging():
                raise
            show_error(PopgraphError(error.strerror or str(error), str(error.filename or "")))
        except Exception as error:
            if _is_typers(error):
                _word(error)
                raise
            if _debugging():
                raise
            show_error(
                PopgraphError(
                    f"PopGraph broke a promise of its own: {type(error).__name__}: {error}",
                    hint="; ".join(
                        [
                            "please report this",
                            *getattr(error, "__notes__", ()),
                            "POPGRAPH_DEBUG=1 shows where it happened",
                        ]
                    ),
                )
            )
        raise typer.Exit(1)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings say what they are about, not which line of PopGraph found it."""
    before = warnings.formatwarning
    if not _debugging():
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _is_typers(error: Exception) -> bool:
    """Whether this is how typer says "wrong usage" or "that is all"."""
    return type(error).__module__.split(".")[0] in ("typer", "click")


def _word(error: Any) -> None:
    """A wrong value in the user's words: without the name of a Python error, the closest choice."""
    message = getattr(error, "message", None)
    if not isinstance(message, str):
        return
    message = message.removeprefix("Value error, ")
    if found := re.fullmatch(r"'(.*)' is not one of (.*)\.", message):
        close = closest(found[1], re.findall("'([^']*)'", found[2]))
        message += f" Did you mean {close!r}?" if close else ""
    error.message = message


def _debugging() -> bool:
    return os.environ.get("POPGRAPH_DEBUG", "0") in ("1", "2", "3", "4")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"popgraph {import_module('popgraph').__version__}")
        raise typer.Exit


def _reference(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from popgraph.cli.command_page import page

        typer.echo(page(context.command))
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    name="popgraph",
    help=ABOUT,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def _callback(
    version: bool = typer.Option(
        False, "--version", help="Show the version.", callback=_version, is_eager=True
    ),
    markdown: bool = typer.Option(
        False, "--markdown", help="As the page docs/cli.md.", callback=_reference, is_eager=True
    ),
    load: Load = None,
) -> None:
    """Only here for the options of `popgraph` itself."""


_callback.__doc__ = ABOUT


def main() -> None:
    """The entry point of the script."""
    # Start-up makes many objects that live to the end; looking at them again and again for
    # garbage takes a third of it.
    gc.set_threshold(100_000, 50, 50)
    if VARIABLE in os.environ:
        answer()
    with ending_at_once():
        command = typer.main.get_command(app)
    if not is_launched():
        command(prog_name="popgraph")
        return
    from popgraph.support.ranks.world import ending_together

    with ending_together():
        command(prog_name="popgraph")
