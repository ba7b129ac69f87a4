"""Tests the encoder of CBOR on the examples of RFC 8949, appendix A."""

from __future__ import annotations

import numpy as np
import pytest

from popgraph.support.cbor import to_cbor
from popgraph.support.errors import PopgraphError

EXAMPLES = [
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (100, "1864"),
    (1000, "1903e8"),
    (1000000, "1a000f4240"),
    (1000000000000, "1b000000e8d4a51000"),
    (18446744073709551615, "1bffffffffffffffff"),
    (-1, "20"),
    (-100, "3863"),
    (-1000, "3903e7"),
    (1.1, "fb3ff199999999999a"),
    (-4.1, "fbc010666666666666"),
    (False, "f4"),
    (True, "f5"),
    (None, "f6"),
    ("", "60"),
    ("IETF", "6449455446"),
    ("ü", "62c3bc"),
    ([], "80"),
    ([1, [2, 3], [4, 5]], "8301820203820405"),
    (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ({}, "a0"),
    ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
]


@pytest.mark.parametrize(("value", "encoded"), EXAMPLES, ids=str)
def test_the_examples_of_the_standard(value: object, encoded: str) -> None:
    assert to_cbor(value).hex() == encoded


@pytest.mark.parametrize("value", [2**64, -(2**64) - 1, b"bytes", np.float32(1), {1}], ids=str)
def test_values_without_encoding_are_refused(value: object) -> None:
    with pytest.raises(PopgraphError):
        to_cbor(value)
