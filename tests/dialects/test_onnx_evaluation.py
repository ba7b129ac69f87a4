"""Tests NumPy functions of operators on random operands, against onnx.reference and onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

import popgraph
from popgraph.backends.reference.onnx_level import run_onnx
from popgraph.builder.onnx.read import import_model
from popgraph.dialects.program import WeightStore
from popgraph.operators.regular_expressions import matcher
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError

OPSET = 20

WORDS = st.text("abAB é.", max_size=4)
SHAPES = npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
NUMBERS = npst.arrays(st.sampled_from([np.float32, np.int64]), SHAPES, elements=st.integers(-2, 2))
STRINGS = npst.arrays(object, SHAPES, elements=WORDS)


def type_of(value: Any) -> Any:
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0]))
    is_text = value.dtype == object
    element = TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_type_proto(element, value.shape)


def model(op: str, operands: Sequence[Any], outputs: int = 1, **attributes: Any) -> ModelProto:
    """A model of one node with operands x0, x1, ...; None is an absent operand."""
    names = ["" if one is None else f"x{at}" for at, one in enumerate(operands)]
    results = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    infos = [
        helper.make_value_info(name, type_of(one))
        for name, one in zip(names, operands, strict=True)
        if name
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], op, infos, made)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", OPSET)])


def answers(op: str, *operands: Any, outputs: int = 1, **attributes: Any) -> list[Any]:
    """Results or errors of this package, onnx.reference and onnxruntime."""
    proto = model(op, operands, outputs, **attributes)
    given = {f"x{at}": one for at, one in enumerate(operands) if one is not None}
    evaluators = (_by_popgraph, _by_reference, _by_onnxruntime)
    return [_tried(evaluator, proto, given) for evaluator in evaluators]


def _by_popgraph(proto: ModelProto, given: dict[str, Any]) -> Any:
    store = WeightStore()
    return list(run_onnx(import_model(proto, store), given, store).values())


def _by_reference(proto: ModelProto, given: dict[str, Any]) -> Any:
    return ReferenceEvaluator(proto).run(None, given)


def _by_onnxruntime(proto: ModelProto, given: dict[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, given)


def _tried(evaluator: Any, *arguments: Any) -> Any:
    try:
        return evaluator(*arguments)
    except Exception as error:  # each implementation has its own exceptions
        return error


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    a, b = np.asarray(one), np.asarray(other)
    if a.dtype.kind in "OU" or b.dtype.kind in "OU":
        return a.shape == b.shape and a.astype(str).tolist() == b.astype(str).tolist()
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)


def check(op: str, *operands: Any, outputs: int = 1, but: str = "", **attributes: Any) -> None:
    """
    Compares the three results where there are any, except for `but`; this package must succeed.
    """
    ours, *others = answers(op, *operands, outputs=outputs, **attributes)
    assert not isinstance(ours, Exception), ours
    compared = {"onnx.reference": others[0], "onnxruntime": others[1]}
    compared.pop(but, None)
    assert any(not isinstance(other, Exception) for other in compared.values()), compared
    for name, other in compared.items():
        if not isinstance(other, Exception):
            assert alike(ours, other), f"{name}: {other}\nthis: {ours}"


def refused(op: str, *operands: Any, **attributes: Any) -> str:
    """The message of this package's error for operands that onnxruntime refuses, too."""
    ours, _, other = answers(op, *operands, **attributes)
    assert isinstance(other, Exception)
    assert isinstance(ours, PopgraphError) and ours.where and ours.hint
    return ours.what


# Strings


@given(STRINGS, st.sampled_from([",", ""]), st.integers(-1, 3))
def test_string_split(x: Array, delimiter: str, most: int) -> None:
    x = np.vectorize(lambda text: text.replace(".", ","), otypes=[object])(x)
    attributes = {} if most < 0 else {"maxsplit": most}
    whole = x.reshape(-1).tolist()
    unsure = "onnxruntime" if delimiter and "" in whole else ""
    if not delimiter and any(text != text.strip() for text in whole):
        unsure = "onnx.reference"
    check("StringSplit", x, outputs=2, but=unsure, delimiter=delimiter, **attributes)


@given(npst.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3), st.data())
def test_string_concat(shapes: npst.BroadcastableShapes, data: st.DataObject) -> None:
    x, y = (data.draw(npst.arrays(object, shape, elements=WORDS)) for shape in shapes.input_shapes)
    check("StringConcat", x, y)


@given(
    npst.arrays(object, st.integers(1, 5), elements=st.text("abAB", min_size=1, max_size=2)),
    st.lists(st.text("abAB", min_size=1, max_size=2), max_size=3),
    st.sampled_from(["LOWER", "UPPER", "NONE"]),
    st.integers(0, 1),
    st.booleans(),
)
def test_string_normalizer(
    x: Array, stops: list[str], case: str, sensitive: int, row: bool
) -> None:
    if stops and not sensitive:  # The reference lowers the case of stop words only.
        x, stops = np.vectorize(str.lower, otypes=[object])(x), [word.lower() for word in stops]
    attributes = {"stopwords": stops} if stops else {}
    folds = case != "NONE" or (stops and not sensitive)
    check(
        "StringNormalizer",
        x.reshape(1, -1) if row else x,
        but="onnxruntime" if folds else "",  # The locale may be missing on this machine.
        case_change_action=case,
        is_case_sensitive=sensitive,
        **attributes,
    )


PATTERNS = [
    "[a-c]+", "a|b", "(a(?i)b|c)a?", r"\Qa.b\E.*", "[[:alpha:]]*", "[^[:upper:]]+",
    "[[:^digit:]]+", r"[\x{61}b]+",
    r"a\s?b", r"\S+", "(?s).*", ".*", "a$", "a$\n?", "(?m)a$\n.*", r"\x{61}b", r"\141b?",
    "(?P<first>a)b*", "(?<first>a)b*", "(?:ab){1,2}", "a{2}", "a{,2}", "a*?b", r"\Aab\z", "^a",
    r"\bab\b", "[]a]+", "[a-]+", "(?i:A)b", "a||b", "", r"\pL+", r"(?i)\p{Lu}", r"[^\P{Ll}]",
    "[[:^space:]a]+", r"\_", "(?U)a+", "(?<1a>a)", r"(?i)\w", "a{01}", "(?i)[\u212a\xdf]", "(?)a",
]  # fmt: skip
SUBJECTS = [
    "",
    "\u212a",
    "k",
    "s",
    "\u017f",
    "\xe9",
    "\xc9",
    "\xdf",
    "\u1e9e",
    "_",
    "\v",
    "\x00",
    "a{01}",
    "a",
    "b",
    "ab",
    "aB",
    "Ab",
    "abb",
    "a.b",
    "a.bx",
    "a\n",
    "ca",
    "a b",
    "a\vb",
    "é",
    "aa",
]
SUBJECTS += ["aa", "]", "-", "ab\n", "a{,2}", "1", "ABC", "abab", "a\nb", "cA", "CA"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_in_re2(pattern: str) -> None:
    ours, _, other = answers("RegexFullMatch", np.array(SUBJECTS, object), pattern=pattern)
    assert not isinstance(other, Exception) and not isinstance(ours, Exception), (ours, other)
    assert dict(zip(SUBJECTS, ours[0], strict=True)) == dict(zip(SUBJECTS, other[0], strict=True))


TOKENS = [
    *"abkés*+?|()[]^$.-{},1\n\\", "(?:", "(?i)", "(?s)", "(?m)", "(?-i)", "(?is-m:", "(?U)",
    "(?P<n>", "(?<n>", "(?", "[^", "{2}", "{1,}", "{0,2}", r"\d", r"\D", r"\w", r"\W", r"\s",
    r"\S", r"\b", r"\B", r"\A", r"\z", r"\Q", r"\E", r"\x61", r"\x{e9}", r"\141", r"\0", r"\1",
    r"\v", r"\_", r"\q", r"\pL", r"\p{Lu}", r"\p{^Ll}", r"\P{Nd}", "[[:alpha:]]", "[[:^space:]]",
    "[[:foo:]]", "[a-k]", "[k-a]", r"[\d-a]", r"[a-\d]", r"[\]a]", "[^]a]", "[[:word:]-]",
]  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=8).map("".join))
def test_drawn_patterns_match_as_in_re2(pattern: str) -> None:
    ours, _, other = answers("RegexFullMatch", np.array(SUBJECTS, object), pattern=pattern)
    if isinstance(other, Exception):
        assert isinstance(ours, Exception), f"RE2 refuses {pattern!r}"
    else:
        assert not isinstance(ours, Exception) and alike(ours, other), (pattern, ours, other)


@pytest.mark.parametrize(
    "pattern", ["(?=a)a", r"(a)\1", "a++", "a**", "(?>a)", "(?P=a)", r"a\Z", "(", "a)"]
)
def test_patterns_that_re2_refuses(pattern: str) -> None:
    assert repr(pattern) in refused("RegexFullMatch", np.array(["a"], object), pattern=pattern)


@pytest.mark.parametrize("pattern", [r"\p{Greek}", r"\C"])
def test_patterns_that_only_re2_supports_are_refused(pattern: str) -> None:
    ours, *_ = answers("RegexFullMatch", np.array(["a"], object), pattern=pattern)
    assert isinstance(ours, PopgraphError) and "scripts" in ours.hint


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+b", "(.*a){20}b", "(a+a+)+b", "(a?){500}b"])
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    """Python's backtracking `re` would try 2**100 paths."""
    assert not matcher(pattern)("a" * 100)
    assert matcher(pattern)("a" * 100 + "b")


@pytest.mark.parametrize(
    "pattern",
    ["a{1001}", "(a{50}){21}", "(" * 1001 + ")" * 1001, "(a{1000}b)" * 101, "a" * 100_001],
)
def test_patterns_that_are_too_large_are_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        matcher(pattern)


# Words and numbers


@st.composite
def term_counts(draw: st.DrawFn) -> tuple[Array, dict[str, Any]]:
    words = st.sampled_from(["a", "b", "c"]) if draw(st.booleans()) else st.integers(0, 2)
    sizes = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 3)))]
    pool: list[Any] = []
    starts: list[int] = []
    for size, count in enumerate(sizes, 1):
        grams = st.lists(st.tuples(*[words] * size), min_size=count, max_size=count, unique=True)
        starts.append(len(pool))
        pool += [word for gram in draw(grams) for word in gram]
    least = draw(st.integers(1, len(sizes)))
    total = sum(sizes)
    attributes = {
        "mode": draw(st.sampled_from(["TF", "IDF", "TFIDF"])),
        "ngram_counts": starts,
        "ngram_indexes": draw(st.permutations(range(total))),
        "min_gram_length": least,
        "max_gram_length": draw(st.integers(least, len(sizes))),
        "max_skip_count": draw(st.integers(0, 2)),
        "pool_strings" if isinstance(pool[0], str) else "pool_int64s": pool,
    }
    if draw(st.booleans()):
        attributes["weights"] = [draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(total)]
    shape = draw(st.sampled_from([(4,), (1, 3), (2, 5)]))
    dtype = object if isinstance(pool[0], str) else np.int64
    return draw(npst.arrays(dtype, shape, elements=words)), attributes


@given(term_counts())
def test_tf_idf_vectorizer(drawn: tuple[Array, dict[str, Any]]) -> None:
    x, attributes = drawn
    # The reference weights by column instead of by n-gram.
    weighted = "weights" in attributes and attributes["mode"] != "TF"
    check("TfIdfVectorizer", x, but="onnx.reference" if weighted else "", **attributes)
    if x.dtype == np.int64:  # n-grams of numbers are also counted in compiled programs
        proto = model("TfIdfVectorizer", [x], **attributes)
        run = popgraph.compile(proto, backend="reference")
        assert alike([run(x0=x)["y0"]], _by_popgraph(proto, {"x0": x}))
        assert not run.computed_by.in_python


NUMERALS = st.one_of(
    st.integers(-(2**62), 2**62).map(str),
    st.floats(-1e6, 1e6, width=32).map(str),
    st.sampled_from(["1e-5", "+INF", "-inf", "NaN", "7.0"]),
)


@given(npst.arrays(object, SHAPES, elements=NUMERALS), st.sampled_from([1, 11]))
def test_cast_of_strings_to_floats(x: Array, to: int) -> None:
    check("Cast", x, to=to)


@given(npst.arrays(object, SHAPES, elements=st.integers(-(2**31), 2**31 - 1).map(str)))
def test_cast_of_strings_to_integers(x: Array) -> None:
    for to in (TensorProto.INT32, TensorProto.INT64):
        check("Cast", x, to=to)
    check("CastLike", x, np.zeros(1, np.int64))


@given(npst.arrays(np.int64, SHAPES))
def test_cast_of_integers_to_strings(x: Array) -> None:
    check("Cast", x, to=TensorProto.STRING)
    check("CastLike", x, np.array(["a"], object))


@given(npst.arrays(np.float32, SHAPES), st.sampled_from([np.float16, np.float32, np.float64]))
def test_cast_of_floats_to_strings_is_read_back(x: Array, dtype: Any) -> None:
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    (written,), *_ = answers("Cast", x, to=TensorProto.STRING)
    to = helper.np_dtype_to_tensor_dtype(x.dtype)
    _, _, (read,) = answers("Cast", written, to=to) if dtype != np.float16 else (0, 0, [x])
    np.testing.assert_array_equal(read, x)


@given(STRINGS, st.data())
def test_movements_of_strings(x: Array, data: st.DataObject) -> None:
    """Movements of strings run through the lowering, which only moves indices."""
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    check("Transpose", x, perm=data.draw(st.permutations(range(x.ndim))))
    check("Concat", x, x, axis=axis)
    check("Flatten", x, axis=axis)
    check("Reshape", x, np.array([-1]))
    check("Unsqueeze", x, np.array([axis]))
    check("Tile", x, np.full(x.ndim, 2))
    check("Expand", x, np.array([2, *x.shape]))
    check("Where", data.draw(npst.arrays(bool, x.shape)), x, np.array("z", object))
    check("Slice", x, np.array([1]), np.array([9]), np.array([axis]))
    check("Equal", x, x[:1])
    if x.shape[axis]:
        places = npst.arrays(np.int64, 2, elements=st.integers(-x.shape[axis], x.shape[axis] - 1))
        # onnxruntime drops the strings
        check("Gather", x, data.draw(places), axis=axis, but="onnxruntime")
    (padded,), *_ = answers("Pad", x, np.repeat([0, 1], x.ndim), np.array("p", object))
    assert alike(padded, np.pad(x, [(0, 1)] * x.ndim, constant_values="p"))
    (padded,), *_ = answers("Pad", x, np.repeat([1, 0], x.ndim))
    assert alike(padded, np.pad(x, [(1, 0)] * x.ndim, constant_values=""))


# Sizes that data decide


@given(st.one_of(NUMBERS, STRINGS), st.data())
def test_compress(x: Array, data: st.DataObject) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-x.ndim, x.ndim - 1)))
    size = x.size if axis is None else x.shape[axis]
    condition = data.draw(npst.arrays(bool, st.integers(0, size)))
    check("Compress", x, condition, **({} if axis is None else {"axis": axis}))


def test_compress_refuses_a_condition_longer_than_the_axis() -> None:
    ours, *_ = answers("Compress", np.zeros(2), np.ones(3, bool))
    assert ours.what == "Compress: the condition selects element 2 of 2"


@given(NUMBERS)
def test_non_zero(x: Array) -> None:
    check("NonZero", x)


@given(st.one_of(NUMBERS, STRINGS), st.integers(0, 1), st.data())
def test_unique(x: Array, sorted: int, data: st.DataObject) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-x.ndim, x.ndim - 1)))
    if axis is not None and not x.size:
        axis = None  # onnxruntime may crash the process
    attributes = {"sorted": sorted} | ({} if axis is None else {"axis": axis})
    unsure = not x.size or not (sorted or axis is None)
    check("Unique", x, outputs=4, but="onnx.reference" if unsure else "", **attributes)


@given(st.integers(1, 2), st.integers(1, 2), st.integers(0, 6), st.integers(0, 1), st.data())
def test_non_max_suppression(
    batch: int, classes: int, count: int, centered: int, data: st.DataObject
) -> None:
    """Integer corners and quarter scores keep every value away from thresholds."""
    corners = npst.arrays(np.float32, (batch, count, 4), elements=st.integers(0, 4))
    scores = npst.arrays(np.float32, (batch, classes, count), elements=st.integers(-2, 4))
    threshold = st.sampled_from([0.0, 0.26, 0.51, 1.0])
    least = data.draw(st.one_of(st.none(), st.sampled_from([-0.6, 0.1, 0.4])))
    check(
        "NonMaxSuppression",
        data.draw(corners),
        data.draw(scores) / 4,
        np.array([data.draw(st.integers(0, 4))]),
        np.array([data.draw(threshold)], np.float32),
        *([] if least is None else [np.array([least], np.float32)]),
        but="onnx.reference",
        center_point_box=centered,
    )


# Sequences


TENSORS = st.lists(
    npst.arrays(np.float32, (2, 2), elements=st.integers(0, 3)), min_size=1, max_size=4
)


@given(TENSORS, st.data())
def test_sequence_positions(sequence: list[Array], data: st.DataObject) -> None:
    size, new = len(sequence), np.full((2, 2), 9, np.float32)
    at = np.array(data.draw(st.integers(-size, size - 1)))
    check("SequenceAt", sequence, at)
    check("SequenceErase", sequence, at)
    check("SequenceErase", sequence)
    check("SequenceInsert", sequence, new, at)
    check("SequenceInsert", sequence, new)
    check("SequenceInsert", sequence, new, np.array(size), but="onnx.reference")
    check("SequenceLength", sequence)
    check("SequenceConstruct", *sequence)
    for place in (-size - 1, size + 1):
        for op, others in (("SequenceAt", ()), ("SequenceErase", ()), ("SequenceInsert", (new,))):
            what = refused(op, sequence, *others, np.array(place))
            assert what == f"{op}: position {place} is out of bounds for {size} tensors"


@given(TENSORS, st.integers(0, 1), st.data())
def test_concat_from_sequence(sequence: list[Array], new_axis: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-2 - new_axis, 1 + new_axis))
    check("ConcatFromSequence", sequence, axis=axis, new_axis=new_axis)


@given(st.one_of(NUMBERS, STRINGS), st.data())
def test_split_to_sequence(x: Array, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    size = x.shape[axis]
    check("SplitToSequence", x, axis=axis, keepdims=data.draw(st.integers(0, 1)))
    check("SplitToSequence", x, np.array(data.draw(st.integers(1, 3))), axis=axis)
    first = data.draw(st.integers(0, size))
    check("SplitToSequence", x, np.array([first, size - first]), axis=axis)
    what = refused("SplitToSequence", x, np.array([size, 1]), axis=axis)
    assert what == f"SplitToSequence: the sizes [{size}, 1] do not split {size} elements"


def test_concat_from_sequence_of_unequal_shapes_is_refused() -> None:
    tensors = [np.zeros((2, 1), np.float32), np.zeros((3, 2), np.float32)]
    assert "ConcatFromSequence" in refused("ConcatFromSequence", tensors, axis=0)
