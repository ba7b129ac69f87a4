"""
Takes the pictures of docs/view.md again: `python -m tests.viewer.pictures [view-ipu ...]`.

Each picture is a browser tab with a page that the command line saved. Look at the results.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from popgraph import zoo

ROOT = Path(__file__).parents[2]
EXAMPLES, IMAGES = ROOT / "examples", ROOT / "docs/images"
SIZE = {"width": 1360, "height": 800}
DIGITS, LENET = "digits_cnn.pgraph", str(zoo.lenet.path)
TRANSFORMER = ("transformer.pgraph", "--dim", "N=1", "--dim", "length=64")
RESNET = (
    str(zoo.resnet50.path),
    "--dim",
    "N=16",
    "--dim",
    "H=224",
    "--dim",
    "W=224",
    "--device",
    "ipu:2",
)
HOSTED = """graph hosted(x: f32[3, 4]) -> (mean, v) {
    a = Relu(x)
    words = Cast(a * a, to=8)
    s = Cast(words, to=f32)
    mean = ReduceMean(s + 1, keepdims=0)
    u = Unique(s)
    v = Exp(u)
}
"""


@dataclass(frozen=True)
class Picture:
    """A model, options of `popgraph view`, and the actions before the picture is taken."""

    model: tuple[str, ...]
    act: Callable[[Any], None]
    dark: bool = False


def view(tab: Any, name: str) -> None:
    tab.click(f"[data-view={name}]")
    tab.wait_for_selector(f"[data-view={name}][aria-selected=true]")


def find(tab: Any, words: str, details: str) -> None:
    """Searches, selects the first result, and shows one tab of its details."""
    tab.fill("#search", words)
    tab.press("#search", "Enter")
    tab.click(f"[data-tab={details}]")


def way_down(tab: Any) -> None:
    find(tab, "softmax", "way")
    tab.evaluate("state.graph.reveal(state.chosen.id)")


def source(tab: Any) -> None:
    view(tab, "source")
    tab.click(".line:has-text('Conv(x, w, b')")
    tab.click("[data-tab=way]")


def time_by_level(tab: Any) -> None:
    view(tab, "time")
    tab.click(".flame .scope:has-text('layer3')")
    choose(tab, "call.name.startsWith('layer3/x/dense')", "{ kind: 'onnx', id: call.onnx[0] }")
    tab.click("[data-tab=way]")


def training_time(tab: Any) -> None:
    view(tab, "graphcore")
    tab.select_option("#tools select", "time")
    choose(tab, "call.name === 'h2' && !call.prepared", "{ kind: 'call', id: call.id }")
    tab.evaluate("state.graph.reveal(related(state.chosen).graphcore[0])")


def choose(tab: Any, which: str, what: str) -> None:
    """Chooses the target `what` of the first call that satisfies the condition `which`."""
    tab.evaluate(f"{{ const call = known.calls.find((call) => {which}); act.choose({what}); }}")


def passes(tab: Any) -> None:
    view(tab, "passes")
    tab.click(".passes button:has-text('fuse-epilogue')")


def steps(tab: Any) -> None:
    view(tab, "graphcore")
    find(tab, "Cast", "kernel")
    tab.fill("#search", "")
    tab.click("text=Fit")


def ipu(tab: Any) -> None:
    view(tab, "ipu")
    tab.wait_for_selector(".strip canvas")
    tab.evaluate("act.choose({ kind: 'tile', id: 700 })")


def liveness(tab: Any) -> None:
    ipu(tab)
    tab.click("text=to the peak")
    tab.evaluate("document.querySelectorAll('#center h3')[1].scrollIntoView()")


PICTURES = {
    "view-way-down": Picture(TRANSFORMER, way_down),
    "view-source": Picture((LENET, "--dim", "N=8"), source),
    "view-kernel": Picture((LENET, "--dim", "N=8"), lambda tab: find(tab, "conv", "kernel")),
    "view-training-time": Picture(
        (DIGITS, "--train", "--dim", "N=32", "--profile"), training_time, dark=True
    ),
    "view-flame": Picture((*TRANSFORMER, "--profile"), time_by_level),
    "view-passes": Picture((LENET, "--dim", "N=8"), passes),
    "view-memory": Picture(TRANSFORMER, lambda tab: view(tab, "memory")),
    "view-ipu": Picture(RESNET, ipu),
    "view-liveness": Picture(RESNET, liveness),
    "view-steps": Picture(("hosted.pgraph",), steps),
    "view-training": Picture((DIGITS,), lambda tab: None),
}


def popgraph(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "popgraph", *map(str, arguments)], check=True)


def digits(folder: Path) -> list[str]:
    """Noisy images of ten classes, as arguments of `popgraph train`."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=4000).astype(np.int32)
    kinds = rng.normal(size=(10, 1, 8, 8))
    images = kinds[labels] + rng.normal(scale=1.6, size=(4000, 1, 8, 8))
    np.save(folder / "x.npy", images.astype(np.float32))
    np.save(folder / "labels.npy", labels)
    return [f"{name}={folder / name}.npy" for name in ("x", "labels")]


def page(name: str, picture: Picture, folder: Path) -> Path:
    """Saves the page of a picture; its path."""
    model, *options = picture.model
    place = folder / f"{'-'.join(picture.model)}.html".replace("/", "-")
    if name == "view-training":
        place = folder / "training.html"
        settings = ("--epochs", 40, "--batch", 32, "--metric", "accuracy", "--validation", 0.2)
        popgraph("train", EXAMPLES / model, *digits(folder), *settings, "--report", place)
    elif not place.exists():
        if model == "hosted.pgraph":
            (folder / model).write_text(HOSTED)
        where = folder if (folder / model).exists() else EXAMPLES
        popgraph("view", where / model, *options, "--save", place)
    return place


def main(names: list[str]) -> None:
    browser_path = shutil.which("chromium")
    with TemporaryDirectory() as text, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name in names or PICTURES:
            picture = PICTURES[name]
            scheme = "dark" if picture.dark else "light"
            tab = browser.new_page(viewport=SIZE, color_scheme=scheme)
            tab.on("console", lambda message: print(message.text))
            tab.on("pageerror", lambda error: print(error))
            tab.goto(page(name, picture, Path(text)).as_uri())
            tab.wait_for_selector("#status:has-text('kernel')")
            picture.act(tab)
            tab.wait_for_timeout(300)
            shot = Image.open(BytesIO(tab.screenshot())).convert("RGB")
            shot.quantize(256).save(IMAGES / f"{name}.png", optimize=True)
            tab.close()
            print(name)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
