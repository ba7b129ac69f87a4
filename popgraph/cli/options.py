"""Options that several commands share, and their conversion to compiler options."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from popgraph.cli.models import check_file
from popgraph.cli.report import note
from popgraph.support.names import closest
from popgraph.support.step_options import STEP_OPTIONS

if TYPE_CHECKING:
    from popgraph.ipu.machine import Ipu
    from popgraph.passes.options import Options
    from popgraph.training.lora_model import LoraSettings


class Level(StrEnum):
    """The levels of the IR, from top to bottom, and C; see `popgraph.dialects.levels`."""

    ONNX = "onnx"
    GRAPHCORE = "graphcore"
    STRUCTURED = "structured"
    LOOPS = "loops"
    PROGRAM = "program"
    C = "c"


LEVELS = "[" + "|".join(level for level in Level if level != Level.C) + "]"
LEVELS_AND_C = "[" + "|".join(Level) + "]"


def level(text: str) -> Level:
    """Parses the name of a level; the former `tile` is accepted with a warning."""
    return _level(text, list(Level))


def ir_level(text: str) -> Level:
    """Parses the name of a level other than C."""
    return _level(text, [one for one in Level if one != Level.C])


def _level(text: str, known: Sequence[Level]) -> Level:
    if text == "tile":
        warnings.warn("the level tile is now program", FutureWarning, stacklevel=2)
        return Level.PROGRAM
    if text.lower() in known:
        return Level(text.lower())
    close = closest(text, known)
    raise typer.BadParameter(
        f"{text!r} is not one of {', '.join(known)}"
        + (f"; did you mean {close!r}?" if close else "")
    )


class Switch(StrEnum):
    """On or off."""

    ON = "on"
    OFF = "off"


SEARCH_PATH = "POPGRAPH_PATH"
"""Same as in `popgraph.builder.pgraph.check.imports`, which is slow to import."""


@contextmanager
def _searching(folders: Sequence[str]) -> Iterator[None]:
    """Prepends folders to the search path in the environment."""
    before = os.environ.get(SEARCH_PATH)
    os.environ[SEARCH_PATH] = os.pathsep.join(filter(None, [*folders, before]))
    try:
        yield
    finally:
        del os.environ[SEARCH_PATH]
        if before is not None:
            os.environ[SEARCH_PATH] = before


def _search(context: typer.Context, folders: list[str] | None) -> list[str] | None:
    """Adds folders to the search path of imports while a command runs."""
    if folders:
        context.with_resource(_searching(folders))
    return folders


Folders = Annotated[
    list[str] | None,
    typer.Option(
        "-I",
        metavar="FOLDER",
        help="Search path for imports of .pgraph files (repeatable).",
        callback=_search,
    ),
]
"""For every command that reads models; its callback handles the option."""


def _load(context: typer.Context, modules: list[str] | None) -> list[str] | None:
    """
    Loads extensions eagerly, since other options may use their names.

    A shell that completes a command line runs nothing of it.
    """
    if modules and not context.resilient_parsing:
        from popgraph.support.extensions import load_module

        for name in modules:
            with _named(f"--load {name}"):
                load_module(name)
    return modules


@contextmanager
def _named(where: str) -> Iterator[None]:
    """
    Names the module whose import prints or is interrupted.

    Its prints go to standard error: standard output may be data that another program reads.
    """
    said = Said(where)
    try:
        with redirect_stdout(said):
            yield
    except KeyboardInterrupt:
        note(f"interrupted in {where}")
        raise


class Said(StringIO):
    """Passes lines to standard error, each with a name before it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name, self._begins = name, True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            sys.stderr.write(f"{self._name}: {line}" if self._begins else line)
            self._begins = line.endswith("\n")
        return len(text)


Load = Annotated[
    list[str] | None,
    typer.Option(
        "--load",
        metavar="MODULE",
        help="Python file or module that registers passes, operators or targets. It is code that "
        "runs in this process: load only modules that you trust.",
        callback=_load,
        is_eager=True,
    ),
]
"""For commands that run passes; its callback handles the option."""

ExtraPasses = Annotated[
    list[str] | None,
    typer.Option(
        "--pass",
        metavar="PASS",
        help="Also run this registered pass: `name`, or 'name{limit=3} after cse'.",
    ),
]


def existing(context: typer.Context, path: Path) -> Path:
    """Checks the file of a model before the compiler is imported."""
    if not context.resilient_parsing:
        check_file(path)
    return path


ModelFile = Annotated[
    Path,
    typer.Argument(
        help="An .onnx, .pgraph, .mlir or .gguf file, or a folder with config.json.",
        callback=existing,
    ),
]


Dimensions = Annotated[
    list[str] | None, typer.Option(metavar="N=4", help="Size of a symbolic dimension.")
]


Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="N=4",
        help="Size of a symbolic dimension; N=..64 for any size up to 64.",
    ),
]
"""For commands that can build one program for many sizes."""


Winograd = Annotated[
    Switch,
    typer.Option(
        case_sensitive=False,
        help="Whether 3x3 and 2x2 convolutions may use Winograd's algorithm.",
    ),
]


class Activations(StrEnum):
    """Types of activations that are multiplied by weights of few bits."""

    FLOAT = "float"
    INT8 = "int8"


ActivationsChoice = Annotated[
    Activations,
    typer.Option(
        "--activations",
        case_sensitive=False,
        help="Type of activations that are multiplied by constant weights of at most 8 bits: int8 "
        "is faster and rounds.",
    ),
]


ScheduleFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Schedules of contractions, see `popgraph schedules`."),
]


class Indices(StrEnum):
    """Treatment of out-of-range indices in inputs."""

    ERROR = "error"
    NEAREST = "nearest"


IndicesChoice = Annotated[
    Indices | None,
    typer.Option(
        "--indices",
        case_sensitive=False,
        help="Meaning of an out-of-range index in an input (default: error).",
    ),
]


Threads = Annotated[int, typer.Option(min=1, help="Number of threads.")]


Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="ipu:2",
        help="Modelled IPUs instead of this machine: `ipu:2` for two, `ipu1` for the first "
        "generation, `ipu:1:64` for one with 64 tiles.",
    ),
]


def ipu_of(device: str | None) -> Ipu | None:
    """The IPUs that `--device` names."""
    if device is None:
        return None
    from popgraph.ipu.machine import device_named

    try:
        return device_named(device)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--device") from error


Train = Annotated[
    bool,
    typer.Option(
        "--train", help="Compile a training step, as defined by the file's `train` section."
    ),
]


Freeze = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Weights to keep constant: 'layer1.*' (repeatable)."),
]


TrainOnly = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Train only these weights, or slices of them: 'fc.*', 'conv.w[:8]' (repeatable).",
    ),
]


Lora = Annotated[
    int | None,
    typer.Option(
        metavar="RANK",
        help="Add low-rank adapters of this rank, and train only these: docs/lora.md.",
    ),
]


LoraLayers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN", help="Weights that get adapters: '*.q_proj.*' (default: all matrices)."
    ),
]


LoraAlpha = Annotated[
    float | None,
    typer.Option(metavar="ALPHA", help="Adapters are scaled by ALPHA / RANK (default: RANK)."),
]


def lora_settings(
    rank: int | None,
    layers: Sequence[str] | None,
    alpha: float | None,
    dropout: float | None = None,
    seed: int = 0,
) -> LoraSettings | None:
    """The adapters that the options of a command describe; None without `--lora`."""
    if rank is None:
        for option, given in (("layers", layers), ("alpha", alpha), ("dropout", dropout)):
            if given:
                raise typer.BadParameter(
                    "requires --lora, the rank of the adapters", param_hint=f"--lora-{option}"
                )
        return None
    from popgraph.training.lora import lora_settings as checked

    return checked(rank, layers or None, alpha=alpha, dropout=dropout or 0.0, seed=seed)


def step_option(name: str) -> Any:
    """A command-line option for a step option of Python and `train` sections."""
    option = STEP_OPTIONS[name]
    return typer.Option(metavar=option.metavar, help=option.help)


Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=2,3",
        help="Value of an input that determines the structure of the model.",
    ),
]


Tuned = Annotated[
    Switch,
    typer.Option(
        case_sensitive=False,
        help="Whether to use schedules that `popgraph tune` found on this machine.",
    ),
]


def pass_name(name: str, option: str | None = None) -> str:
    """The name of a pass; BadParameter if there is none."""
    from popgraph.passes.pipeline import PASSES, current, pass_named

    name = current(name)
    if name not in PASSES:
        import popgraph.ipu.map_to_tiles  # noqa: F401 (registers its pass)
    if pass_named(name) is None:
        close = closest(name, PASSES)
        hint = f"did you mean {close!r}?" if close else "`popgraph passes` lists them"
        raise typer.BadParameter(f"there is no pass {name!r}; {hint}", param_hint=option)
    return name


def options(
    winograd: Switch = Switch.ON,
    schedule: Path | None = None,
    tuned: Switch = Switch.ON,
    indices: Indices | None = None,
    passes: Sequence[str] | None = None,
    activations: Activations = Activations.FLOAT,
) -> Options:
    """Compiler options of the user's choices."""
    from popgraph.passes.options import Options

    return Options(
        winograd=winograd == Switch.ON,
        schedules=() if schedule is None else _schedules(schedule),
        measured=None if tuned == Switch.ON else (),
        indices=None if indices is None else indices.value,
        passes=tuple(passes or ()),
        activations=activations.value,
    )


def _schedules(file: Path) -> tuple[str, ...]:
    from popgraph.dialects.tile.structured.schedule_file import read_schedules

    return read_schedules(file)


def options_here(
    winograd: Switch = Switch.ON,
    schedule: Path | None = None,
    tuned: Switch = Switch.ON,
    threads: int = 1,
    indices: Indices | None = None,
    passes: Sequence[str] | None = None,
    activations: Activations = Activations.FLOAT,
) -> Options:
    """The same, plus the properties of this machine."""
    from popgraph.compiler import for_this_machine

    made = options(winograd, schedule, tuned, indices, passes, activations)
    return for_this_machine(made, threads)
