"""Tests every writer on a real full disk: a small file system in memory, mounted if root may."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.callbacks import CSVLogger, ModelCheckpoint
from popgraph.cli import app
from popgraph.support.errors import WriteError
from popgraph.support.writing import append_to
from popgraph.training.callbacks import Log

FULL = Path("/dev/full")
"""A device on which every write fails as on a full disk."""
NET = (
    "graph g(x: f32[N, 64]) -> (y) {\n    weight w: f32[64, 8] = glorot_uniform\n    y = x @ w\n}\n"
)
X, LABELS = np.ones((8, 64), np.float32), np.zeros(8, np.int64)
OLD = b"the old content " * 500


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 128 KiB."""
    folder = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "popgraph-test", str(folder)]
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root on Linux mounts a small disk")
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def filled(disk: Path, left: int = 0) -> Iterator[None]:
    """Fills the disk except for some bytes; afterwards, nothing but the filling is removed."""
    filling = disk / "filling"
    room = os.statvfs(disk)
    with filling.open("wb", buffering=0) as file:
        file.write(b"x" * (room.f_bavail * room.f_bsize - left))
    try:
        yield
    finally:
        filling.unlink()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"filling"}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.pgraph"
    path.write_text(NET)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "labels.npy", LABELS)
    return path


def trainer() -> popgraph.Trainer:
    return popgraph.Trainer(NET, loss="cross_entropy", optimizer="SGD(0.1, momentum=0.9)")


def command(*arguments: object) -> None:
    """Runs a command that must end with the message of a full disk."""
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 1, result.output
    assert "cannot be written: No space left on device" in result.output
    assert "try: free some space, or choose another disk" in result.output
    assert "Traceback" not in result.output


def training(net: Path, *options: object) -> tuple[object, ...]:
    arrays = [f"{name}={net.parent / name}.npy" for name in ("x", "labels")]
    return (
        "train",
        net,
        "--data",
        *arrays,
        "--loss",
        "cross_entropy",
        "--optimizer",
        "SGD(0.1)",
        "--batch",
        4,
        "--epochs",
        1,
        *options,
    )


COMMANDS: dict[str, tuple[str, Callable[[Path, Path], tuple[object, ...]]]] = {
    "convert": ("net.onnx", lambda net, file: ("convert", net, file)),
    "export": ("program", lambda net, file: ("export", net, "--dim", "N=2", "-o", file)),
    "quantize": (
        "int8.onnx",
        lambda net, file: ("quantize", net, "--data", f"x={net.parent / 'x.npy'}", "-o", file),
    ),
    "view --save": ("page.html", lambda net, file: ("view", net, "--save", file)),
    "train -o": ("trained.onnx", lambda net, file: training(net, "-o", file)),
    "train --log": ("run.csv", lambda net, file: training(net, "--log", file)),
    "train --report": ("report.html", lambda net, file: training(net, "--report", file)),
    "train --checkpoint": ("run.ckpt", lambda net, file: training(net, "--checkpoint", file)),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_on_a_full_disk_keep_the_old_file(disk: Path, net: Path, name: str) -> None:
    place, arguments = COMMANDS[name]
    file = disk / place
    is_folder = name == "export"
    if not is_folder:
        file.write_bytes(OLD)
    try:
        with filled(disk):
            command(*arguments(net, file))
        if is_folder:
            assert not file.exists() or not names(file)
        else:
            assert file.read_bytes() == OLD and names(disk) == {place}
    finally:
        subprocess.run(["rm", "-rf", str(file)], check=True)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "export"])
def test_commands_report_a_full_device(net: Path, name: str) -> None:
    """Runs everywhere; a device keeps no content."""
    place, arguments = COMMANDS[name]
    link = net.parent / place
    link.symlink_to(FULL)
    command(*arguments(net, link))
    assert link.is_symlink() and FULL.is_char_device()


def test_training_resumes_from_the_checkpoint_before_the_disk_was_full(disk: Path) -> None:
    file = disk / "run.ckpt"
    expected = trainer()
    expected.fit((X, LABELS), epochs=3, batch=4)
    trained = trainer()
    trained.fit((X, LABELS), epochs=1, batch=4, checkpoint=file)
    before = file.read_bytes()
    with filled(disk), pytest.raises(WriteError, match="No space left on device") as caught:
        trainer().fit((X, LABELS), epochs=3, batch=4, checkpoint=file, resume=True)
    assert caught.value.where == str(file)
    assert "free some space" in caught.value.hint and "unchanged" in caught.value.hint
    assert file.read_bytes() == before and names(disk) == {"run.ckpt"}
    resumed = trainer()
    resumed.fit((X, LABELS), epochs=3, batch=4, checkpoint=file, resume=True)
    for name, weights in expected.weights().items():
        np.testing.assert_array_equal(resumed.weights()[name], weights)
    file.unlink()


def test_a_trainer_that_hit_a_full_disk_can_be_saved_elsewhere(disk: Path, tmp_path: Path) -> None:
    trained = trainer()
    with filled(disk), pytest.raises(WriteError):
        trained.fit((X, LABELS), epochs=3, batch=4, checkpoint=disk / "run.ckpt")
    assert names(disk) == set() and len(trained.history.steps) >= 2
    trained.save(tmp_path / "saved.onnx")
    trained.fit((X, LABELS), epochs=1, batch=4)


@pytest.mark.parametrize("kind", [Log, CSVLogger, ModelCheckpoint])
def test_callbacks_report_a_full_disk(disk: Path, kind: Callable[..., popgraph.Callback]) -> None:
    file = disk / ("best.onnx" if kind is ModelCheckpoint else "run.csv")
    with filled(disk), pytest.raises(WriteError, match="No space left") as caught:
        trainer().fit((X, LABELS), epochs=2, batch=4, callbacks=[kind(file)])
    assert caught.value.where == str(file)
    assert not file.exists() or file.read_bytes() == b""
    file.unlink(missing_ok=True)
    assert names(disk) == set()


@pytest.mark.parametrize("size", [5000, 50_000])
def test_appending_to_a_full_disk_leaves_no_part(disk: Path, size: int) -> None:
    """Less than a page is free at the end of the file: a part of the data fits."""
    file = disk / "log"
    file.write_bytes(OLD)
    with filled(disk), pytest.raises(WriteError):
        append_to(file, b"y" * size)
    assert file.read_bytes() == OLD
    file.unlink()


def test_a_model_is_computed_with_its_cache_on_a_full_disk(disk: Path, net: Path) -> None:
    code = (
        "import sys, numpy as np, popgraph\n"
        "y, = popgraph.compile(sys.argv[1])(x=np.ones((3, 64), np.float32)).values()\n"
        "print(y.shape)"
    )
    place = {**os.environ, "POPGRAPH_CACHE_DIR": str(disk / "cache")}
    with filled(disk):
        done = subprocess.run(
            [sys.executable, "-c", code, str(net)],
            env=place, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "(3, 8)\n", done.stderr
    assert "cannot be written (No space left on device)" in done.stderr
    assert "Traceback" not in done.stderr
    left = [path for path in disk.rglob("*") if path.is_file()]
    assert not left, "no half-written entry remains"
    subprocess.run(["rm", "-rf", str(disk / "cache")], check=True)
