"""Runs models in onnxruntime, in a separate process, which damaged models may crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Case = tuple[bytes, Mapping[str, Any]]
"""A model and its inputs."""

SAFE = 64
"""Bound of weights: two products fit 16 bits, in which onnxruntime adds on some CPUs."""


def answers(cases: Sequence[Case], folder: Path) -> list[dict[str, Any] | str]:
    """For each case, the results of onnxruntime, or its error."""
    for place, (model, inputs) in enumerate(cases):
        (folder / f"{place}.onnx").write_bytes(model)
        np.savez(folder / f"{place}.in.npz", **_keyed(inputs))
    begun = 0
    while begun < len(cases):
        subprocess.run([sys.executable, __file__, str(folder), str(begun)], check=False)
        begun = _first_missing(folder, begun, len(cases))
    return [_answer(folder, place) for place in range(len(cases))]


def _keyed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by index, since names of inputs may be any text."""
    return {str(place): array for place, array in enumerate(inputs.values())}


def _first_missing(folder: Path, begun: int, count: int) -> int:
    """The index after the case that crashed the process."""
    for place in range(begun, count):
        if not _done(folder, place):
            (folder / f"{place}.txt").write_text("onnxruntime did not survive it")
            return place + 1
    return count


def _done(folder: Path, place: int) -> bool:
    return (folder / f"{place}.txt").exists() or (folder / f"{place}.out.npz").exists()


def _answer(folder: Path, place: int) -> dict[str, Any] | str:
    reason = folder / f"{place}.txt"
    if reason.exists():
        return reason.read_text()
    with np.load(folder / f"{place}.out.npz") as found:
        names = (folder / f"{place}.names").read_text().split("\0")
        return {name: found[str(index)] for index, name in enumerate(names)}


def run_all(folder: Path, begun: int) -> None:
    """Runs the cases from an index on, until all are done or one crashes the process."""
    place = begun
    while (folder / f"{place}.onnx").exists():
        try:
            found = _run(folder, place)
        except Exception as error:
            (folder / f"{place}.txt").write_text(str(error).replace("\n", " ")[:300])
        else:
            (folder / f"{place}.names").write_text("\0".join(found))
            np.savez(folder / f"{place}.out.npz", **_keyed(found))
        place += 1


def _run(folder: Path, place: int) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        (folder / f"{place}.onnx").read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    with np.load(folder / f"{place}.in.npz") as arrays:
        inputs = {one.name: arrays[str(at)] for at, one in enumerate(session.get_inputs())}
    return dict(zip(names, session.run(names, inputs), strict=True))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), int(sys.argv[2]))
