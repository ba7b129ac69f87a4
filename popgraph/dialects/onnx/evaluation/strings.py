"""Evaluates operators on strings."""

from __future__ import annotations

import re

import numpy as np

from popgraph.dialects.onnx.evaluation.given import Given, objects, texts
from popgraph.dialects.onnx.evaluation.registry import computes
from popgraph.dialects.onnx.evaluation.regular_expressions import matcher
from popgraph.support.arrays import Array


@computes("StringConcat")
def string_concat(given: Given, x: Array, y: Array) -> Array:
    return np.asarray(np.add(texts(x), texts(y)), object)


@computes("StringSplit")
def string_split(given: Given, x: Array) -> tuple[Array, Array]:
    """
    Substrings along a new axis, filled up with empty strings, and how many there are.

    Without a delimiter, Python's whitespace separates, and none remains at the ends: ONNX's
    reference keeps it after the last of `maxsplit` splits, and onnxruntime knows ASCII's only. With
    a delimiter an empty string is one substring, as in the reference; onnxruntime counts none.
    """
    delimiter, most = given.get("delimiter") or None, given.get("maxsplit", -1)
    whole = texts(x).reshape(-1)
    parts = [(one if delimiter else one.strip()).split(delimiter, most) for one in whole]
    longest = max(map(len, parts), default=0)
    filled = [one for part in parts for one in part + [""] * (longest - len(part))]
    counts = np.array([len(part) for part in parts], np.int64)
    return objects(filled, (*x.shape, longest)), counts.reshape(x.shape)


@computes("StringNormalizer")
def string_normalizer(given: Given, x: Array) -> Array:
    """
    Without stop words, in the case that the node names; one empty string if nothing is left.

    Case is Unicode's, whatever the locale is.
    """
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(given["case_change_action"], str)
    compared = str if given["is_case_sensitive"] else str.lower
    stops = {compared(word) for word in given.many("stopwords")}
    kept = [change(word) for word in texts(x).reshape(-1) if compared(word) not in stops] or [""]
    return objects(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))


@computes("RegexFullMatch")
def regex_full_match(given: Given, x: Array) -> Array:
    """Whether each string as a whole matches the pattern, see `regular_expressions`."""
    try:
        matches = matcher(given["pattern"])
    except re.error as error:
        raise given.fail(
            f"RegexFullMatch: pattern {given['pattern']!r}: {error}",
            "write it in RE2's syntax, of which scripts (\\p{Greek}) and \\C are not supported",
        ) from error
    found = [matches(text) for text in texts(x).reshape(-1)]
    return np.array(found, bool).reshape(x.shape)
