"""Writes the tables of names in docs/training.md: `python -m tests.names_page`."""

from __future__ import annotations

import inspect
from pathlib import Path

from popgraph.builder.pgraph.check.loss_table import LOSSES
from popgraph.builder.pgraph.lower.schedules import PARAMETERS, SCHEDULE_NAMES, SCHEDULES
from popgraph.passes.optimizer_spec import Scalar
from popgraph.support.names import Names
from popgraph.support.tables import markdown_table
from popgraph.training.metrics import METRIC_NAMES, NAMED, TopK
from popgraph.training.update_rule import OPTIMIZER_NAMES, OPTIMIZERS, Named, parameters_of

PAGE = Path(__file__).parent.parent / "docs/training.md"
MARKS = ("<!-- names: written by `python -m tests.names_page` -->", "<!-- end of names -->")

DISTANCES = {"mae": "The mean of absolute errors.", "mse": "The mean of squared errors."}


def code(words: str) -> str:
    return ", ".join(f"`{one}`" for one in words.split())


def aliases(names: Names, name: str) -> str:
    return code(" ".join(names.aliases(name)))


def losses() -> str:
    rows = [
        (f"`{loss.usage}`", loss.about, code(loss.aliases), options(loss.options, loss.settings))
        for loss in LOSSES.values()
    ]
    return markdown_table(("loss", "meaning", "also", "options"), rows)


def options(names: tuple[str, ...], settings: object) -> str:
    assert isinstance(settings, dict)
    return ", ".join(f"`{one}={settings[one]}`" if one in settings else f"`{one}`" for one in names)


def parameters(named: Named) -> str:
    shown = []
    for name, default in parameters_of(named).items():
        if name == "mode" or "type" in name:
            continue
        value = default.value if isinstance(default, Scalar) else default
        shown.append(f"`{name}={str(value).lower()}`")
    return ", ".join(shown)


def optimizers() -> str:
    groups: dict[str, list[str]] = {}
    for name, named in OPTIMIZERS.items():
        groups.setdefault(parameters(named), []).append(f"`{name}`")
    rows = [(", ".join(names), defaults) for defaults, names in groups.items()]
    return markdown_table(("optimizer", "parameters and their defaults"), rows)


def metrics() -> str:
    rows = []
    for name, metric in NAMED.items():
        about = (inspect.getdoc(type(metric)) or "").split("\n\n")[0].replace("\n", " ")
        if isinstance(metric, TopK):
            likely = "the most likely one" if metric.k == 1 else f"among the {metric.k} most likely"
            about = f"The share of samples whose class is {likely}."
        about = DISTANCES.get(name, about)
        rows.append((f"`{name}`", about, aliases(METRIC_NAMES, name)))
    return markdown_table(("metric", "meaning", "also"), rows)


def schedules() -> str:
    rows = []
    for name in SCHEDULES:
        words = PARAMETERS.get(name, {})
        also = ", ".join(f"`{theirs}` for `{ours}`" for theirs, ours in words.items())
        rows.append((f"`{name}`", aliases(SCHEDULE_NAMES, name), also))
    return markdown_table(("schedule", "also", "parameters also"), rows)


def section() -> str:
    assert all(aliases(OPTIMIZER_NAMES, name) in ("", "`adaptive`") for name in OPTIMIZERS)
    return "\n\n".join((losses(), optimizers(), metrics(), schedules()))


def page() -> str:
    """The page with current tables."""
    text = PAGE.read_text()
    begin, end = MARKS
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{section()}\n\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
