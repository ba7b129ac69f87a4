"""Tests the rounding of printed numbers to significant digits."""

from __future__ import annotations

import json

from popgraph.support.figures import MOMENT, csv_text, json_text, rounded


def test_sums_of_floats_have_no_noise() -> None:
    noisy = {"sum": 1.1 + 2.2 + 3.292, "parts": (0.1 + 0.2, 12345678.9), "count": 123456789}
    assert rounded(noisy) == {"sum": 6.592, "parts": [0.3, 12345700.0], "count": 123456789}
    assert json.loads(json_text(noisy)) == rounded(noisy)
    assert csv_text([["a", "b"], [1.1 + 2.2, None]]) == "a,b\n3.3,\n"


def test_times_keep_their_differences() -> None:
    assert rounded([12345678.9, True, "1.10000001"], MOMENT) == [12345678.9, True, "1.10000001"]
