"""Prometheus on samples that a test scrapes: alerting rules, and of PromQL the forms that our rules use.

The grammar is promql-parser's, which is Prometheus' own. The evaluation follows Prometheus 3: a range is open to the
left, `increase` extrapolates to the range's ends (its extrapolatedRate), `deriv` is a least-squares line, and an
instant selector finds nothing of a series that the last scrape did not have. Other forms raise NotImplementedError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

import promql_parser as promql
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kadence.metrics import Measured
from kadence.metrics.prometheus import ClientCollector

Labels = frozenset[tuple[str, str]]
"""Of a series, without its name."""

Vector = dict[Labels, float]
Samples = list[tuple[float, float]]
"""Moments in seconds, and values."""

_COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_COMPUTED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class Prometheus:
    """What a server has scraped, and which alerts of its rules fire."""

    def __init__(self, rules: Iterable[Mapping[str, Any]]) -> None:
        self._rules = [(each, promql.parse(each["expr"])) for each in rules]
        self._series: dict[tuple[str, Labels], Samples] = {}
        self._scraped = -1.0
        self._since: dict[tuple[str, Labels], float] = {}
        self.fired: dict[str, set[Labels]] = {}
        """Which alerts have fired so far, and of which series."""

    def turn(self, now: float, clients: Iterable[Measured]) -> None:
        """Scrape clients, and evaluate all rules. Its own moment is given, so that no test waits."""
        registry = CollectorRegistry()
        collector = ClientCollector(*clients)  # it refers to its clients weakly
        registry.register(collector)
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                series = sample.name, frozenset(sample.labels.items())
                self._series.setdefault(series, []).append((now, sample.value))
        self._scraped = now
        for rule, expression in self._rules:
            self._judge(rule, self.value(expression, now), now)

    def _judge(self, rule: Mapping[str, Any], found: Vector, now: float) -> None:
        name = rule["alert"]
        for pending in [key for key in self._since if key[0] == name and key[1] not in found]:
            del self._since[pending]
        waits = promql.parse_duration(rule["for"]).total_seconds() if "for" in rule else 0.0
        for labels in found:
            if now - self._since.setdefault((name, labels), now) >= waits:
                self.fired.setdefault(name, set()).add(labels)

    def value(self, node: Any, now: float) -> Any:
        """An expression's vector, or its number."""
        match node:
            case promql.NumberLiteral():
                return node.val
            case promql.ParenExpr():
                return self.value(node.expr, now)
            case promql.VectorSelector():
                return {
                    labels: samples[-1][1]
                    for labels, samples in self._selected(node)
                    if samples[-1][0] == self._scraped
                }
            case promql.Call():
                return self._called(node, now)
            case promql.BinaryExpr():
                return self._both(node, now)
        raise NotImplementedError(type(node).__name__)

    def _selected(self, node: promql.VectorSelector) -> Iterable[tuple[Labels, Samples]]:
        if node.offset is not None or node.at is not None or node.matchers.or_matchers:
            raise NotImplementedError(node.prettify())
        wanted = set()
        for each in node.matchers.matchers:
            if each.op != promql.MatchOp.Equal:
                raise NotImplementedError(node.prettify())
            wanted.add((each.name, each.value))
        return [
            (labels, samples)
            for (name, labels), samples in self._series.items()
            if name == node.name and wanted <= labels
        ]

    def _called(self, node: promql.Call, now: float) -> Vector:
        function = _FUNCTIONS.get(node.func.name)
        if function is None or len(node.args) != 1:
            raise NotImplementedError(node.prettify())
        (matrix,) = node.args
        start = now - matrix.range.total_seconds()
        ranges = {
            labels: [sample for sample in samples if start < sample[0] <= now]
            for labels, samples in self._selected(matrix.vector_selector)
        }
        return {
            labels: function(samples, start, now) for labels, samples in ranges.items() if len(samples) >= 2
        }

    def _both(self, node: promql.BinaryExpr, now: float) -> Vector:
        one, other, sign = self.value(node.lhs, now), self.value(node.rhs, now), str(node.op)
        if not isinstance(one, dict) or (node.modifier is not None and str(node.modifier)):
            raise NotImplementedError(node.prettify())
        if sign == "and" and isinstance(other, dict):
            return {labels: value for labels, value in one.items() if labels in other}
        pairs = {
            labels: (value, other[labels] if isinstance(other, dict) else other)
            for labels, value in one.items()
            if not isinstance(other, dict) or labels in other
        }
        if sign in _COMPARED:
            return {labels: pair[0] for labels, pair in pairs.items() if _COMPARED[sign](*pair)}
        if sign in _COMPUTED:
            return {labels: _COMPUTED[sign](*pair) for labels, pair in pairs.items()}
        raise NotImplementedError(node.prettify())


def increase(samples: Samples, start: float, end: float) -> float:
    """Prometheus' extrapolatedRate for a counter."""
    (first, value), (last, final) = samples[0], samples[-1]
    grown = final - value
    for (_, before), (_, after) in pairwise(samples):
        grown += before if after < before else 0  # the counter began anew
    step = (last - first) / (len(samples) - 1)
    ahead, behind = first - start, end - last
    ahead = step / 2 if ahead >= step * 1.1 else ahead
    behind = step / 2 if behind >= step * 1.1 else behind
    if grown > 0 and value >= 0:
        ahead = min(ahead, (last - first) * value / grown)  # a counter is not below zero
    return grown * (last - first + ahead + behind) / (last - first)


def deriv(samples: Samples, _start: float, _end: float) -> float:
    """The slope of a least-squares line, for each second."""
    moments = [moment for moment, _ in samples]
    middle = sum(moments) / len(samples)
    height = sum(value for _, value in samples) / len(samples)
    return sum((moment - middle) * (value - height) for moment, value in samples) / sum(
        (moment - middle) ** 2 for moment in moments
    )


_FUNCTIONS: Final[Mapping[str, Callable[[Samples, float, float], float]]] = {
    "increase": increase,
    "deriv": deriv,
}
