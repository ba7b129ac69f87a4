"""The attribute of index checks: which outputs report out-of-range indices."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import BytesAttr, IntsAttr
from popgraph.support.index_checks import IndexCheck


@irdl_attr_definition
class IndexCheckAttr(ParametrizedAttribute):
    """
    An output that reports the range of indices; see `IndexCheck`.

    `#pg.index_check<output, what, place, low, last>`: the output holds the largest `index - low`,
    as unsigned integers, so one comparison with `last - low` covers both ends.
    """

    name = "pg.index_check"
    output: BytesAttr
    what: BytesAttr
    place: BytesAttr
    low: IntsAttr
    last: IntsAttr

    @staticmethod
    def of(check: IndexCheck) -> IndexCheckAttr:
        return IndexCheckAttr(
            BytesAttr.of(check.output),
            BytesAttr.of(check.what),
            BytesAttr.of(check.place),
            IntsAttr(check.low),
            IntsAttr(check.last),
        )

    @property
    def check(self) -> IndexCheck:
        words = (self.output.text, self.what.text, self.place.text)
        return IndexCheck(*words, self.low.data, self.last.data)

    def verify(self) -> None:
        if len(self.low) != len(self.last):
            raise VerifyException(f"{len(self.low)} lowest indices, but {len(self.last)} last ones")


IndexChecksAttr = ArrayAttr[IndexCheckAttr]


def checks_attribute(checks: Iterable[IndexCheck]) -> IndexChecksAttr:
    return ArrayAttr([IndexCheckAttr.of(check) for check in checks])


def checks_of(attribute: IndexChecksAttr | None) -> tuple[IndexCheck, ...]:
    """The checks in a property; none if it is absent."""
    return () if attribute is None else tuple(one.check for one in attribute)
