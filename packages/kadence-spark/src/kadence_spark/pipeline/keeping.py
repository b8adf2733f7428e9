"""Keeps the column `RECORD` through a statement that leaves it out: in Spark's plan, and not in the statement's text.

Spark has analysed the statement, so views, stars and common table expressions are resolved. The column is passed up
from its relation through each projection. That is not possible in a plan that makes a row of several rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["with_column_kept"]

_PASSING: Final = frozenset(
    {
        "Filter",
        "Generate",
        "GlobalLimit",
        "LocalLimit",
        "Repartition",
        "Sort",
        "SubqueryAlias",
        "View",
        "Window",
    }
)
"""Nodes of a plan with one child that keep all of its columns."""


def with_column_kept(frame: DataFrame, name: str) -> DataFrame | None:
    """The same rows with the column as the first one; None if the plan makes a row of several rows.

    Args:
        frame: the result of a statement over views, one of which has the column.
    """
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    session: Any = frame.sparkSession
    plans = _Plans(session._jvm, name)
    kept = plans.kept(plans.inlined(frame._jdf.queryExecution().analyzed()))
    if kept is None:
        return None
    made = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, kept[0])
    return Classic(made, session)


class _Plans:
    """Spark's logical plans, which are Java objects."""

    def __init__(self, jvm: Any, name: str) -> None:
        self._jvm = jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst
        self._name = name

    def inlined(self, plan: Any) -> Any:
        """The plan with common table expressions inlined."""
        # In all versions of Spark "always" is the first parameter; later ones keep their default, false.
        loader = plan.getClass().getClassLoader()
        rule = loader.loadClass("org.apache.spark.sql.catalyst.optimizer.InlineCTE").getConstructors()[0]
        others = [False] * (rule.getParameterCount() - 1)
        return self._catalyst.optimizer.InlineCTE(True, *others).apply(plan)

    def kept(self, plan: Any) -> tuple[Any, Any] | None:
        """A plan that has the column, and the column in it."""
        if (column := self._column(plan)) is not None:
            return plan, column
        children = [self.kept(child) for child in _each(plan.children())]
        kind = plan.getClass().getSimpleName()
        if kind == "Join":
            return self._joined(plan, children)
        found = [child for child in children if child is not None]
        if not found or len(found) < len(children):
            return None
        if kind == "Union":
            return self._united(plan, found)
        child, column = found[0]
        if kind == "Project":
            return self._projected(column, _each(plan.projectList()), child), column
        return (plan.withNewChildren(self._seq([child])), column) if kind in _PASSING else None

    def _joined(self, plan: Any, children: list[tuple[Any, Any] | None]) -> tuple[Any, Any] | None:
        """One side of a join has the record. If both do, the row has no single record."""
        found = [child for child in children if child is not None]
        if len(found) != 1:
            return None
        sides = [
            old if new is None else new[0] for old, new in zip(_each(plan.children()), children, strict=True)
        ]
        made = plan.withNewChildren(self._seq(sides))
        column = self._column(made)
        return None if column is None else (made, column)

    def _united(self, plan: Any, found: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """The column is the first one of each part, and another one in each."""
        parts = []
        for child, column in found:
            others = [each for each in _each(child.output()) if not each.semanticEquals(column)]
            parts.append(self._projected(self._alias(column), iter(others), child))
        made = plan.withNewChildren(self._seq(parts))
        return made, made.output().apply(0)

    def _projected(self, column: Any, others: Iterator[Any], child: Any) -> Any:
        columns = self._seq([column, *others])
        return self._catalyst.plans.logical.Project(columns, child)

    def _alias(self, column: Any) -> Any:
        fresh = self._catalyst.expressions.NamedExpression.newExprId()
        nothing = self._seq([])
        none = getattr(self._jvm.scala, "None$")
        return self._catalyst.expressions.Alias(
            column, self._name, fresh, nothing, getattr(none, "MODULE$"), nothing
        )

    def _column(self, plan: Any) -> Any | None:
        found = [each for each in _each(plan.output()) if each.name() == self._name]
        return found[0] if len(found) == 1 else None

    def _seq(self, items: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(items)


def _each(seq: Any) -> Iterator[Any]:
    for at in range(seq.size()):
        yield seq.apply(at)
