"""The table of contents: which module of this package evaluates which operators."""

from __future__ import annotations

from popgraph.support.pages import pages

_TABLE = """
constants ai.onnx Constant Identity Shape Size
dictionaries ai.onnx.ml CastMap CategoryMapper DictVectorizer LabelEncoder OneHotEncoder ZipMap
images ai.onnx ImageDecoder
selections ai.onnx Compress NonMaxSuppression NonZero Unique
sequences ai.onnx ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase
sequences ai.onnx SequenceInsert SequenceLength SplitToSequence
strings ai.onnx RegexFullMatch StringConcat StringNormalizer StringSplit
term_counts ai.onnx TfIdfVectorizer
"""

PAGES = pages(__package__, _TABLE)
