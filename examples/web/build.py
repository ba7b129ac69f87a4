"""Build a page that trains on digits in the browser: the network as WebAssembly, and the data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
BATCH = 32


def load_digits() -> np.ndarray:
    """1,797 digits of scikit-learn, shuffled: rows of 64 pixels from 0 to 16, and the label."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("the digits come with a package: pip install scikit-learn") from None
    images, labels = load_digits(return_X_y=True)
    table = np.column_stack([images, labels]).astype(np.uint8)
    return table[np.random.default_rng(0).permutation(len(table))]


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    sizes = ["--dim", f"N={BATCH}", "--run-dim", "N=1"]
    package = ["--package", "npm", "--name", "digits", "-o", str(folder / "digits")]
    command = [sys.executable, "-m", "popgraph", "export", str(HERE / "digits.pgraph"), "--train"]
    if subprocess.run([*command, *sizes, *package]).returncode:
        raise SystemExit(1)
    load_digits().tofile(folder / "digits.bin")
    for name in ("index.html", "page.js", "page.css"):
        shutil.copy(HERE / name, folder)
    print(f"now: python -m http.server -d {folder}, and open http://localhost:8000")


if __name__ == "__main__":
    main()
