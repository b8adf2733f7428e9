"""The column of the record in a statement's text."""

from __future__ import annotations

import pytest

from kadence_spark.pipeline.statement import with_column


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, id * 2 AS twice ^FROM records",
        "select id*2 ^from records",
        "SELECT id ^FROM `Records`",
        "SELECT _record.offset AS at ^FROM records",
        "WITH r AS (SELECT id ^FROM records) SELECT id ^FROM r;",
        "WITH r AS (SELECT id ^FROM records), o AS (SELECT 1 AS x FROM t) SELECT id, x ^FROM r, o",
        "WITH o AS (SELECT x FROM t) SELECT id, x ^FROM records JOIN o ON id = x",
        "SELECT id ^FROM records UNION ALL SELECT -id ^FROM records -- both",
        "(SELECT id ^FROM records) UNION ALL (SELECT * EXCEPT (part) FROM records)",
        "SELECT id ^FROM (SELECT id, part ^FROM records)",
        "SELECT id ^FROM (SELECT * FROM records) AS r JOIN LATERAL (SELECT r.id + 1 AS next) n",
        "SELECT r.id ^FROM records AS r LEFT JOIN o ON r.id = o.id WHERE r.id IN (SELECT id FROM records)",
        "SELECT o.* ^FROM records r, other o",
        "SELECT id ^FROM records LEFT SEMI JOIN others ON true",
        "SELECT id ^FROM other JOIN STREAM(records)",
        "SELECT id, (SELECT max(x) FROM o) AS most ^FROM STREAM records",
        "SELECT id, x ^FROM records LATERAL VIEW explode(array(1, 2)) t AS x ORDER BY 1",
        "SELECT ' FROM (' AS t, a IS DISTINCT FROM b AS d -- FROM\n, extract(year FROM at) ^FROM records",
    ],
)
def test_each_select_of_rows_of_records_gets_it(sql: str) -> None:
    """At each mark."""
    assert with_column(sql.replace("^", ""), "_record", ["records"]) == sql.replace("^", ", _record ")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT *, 1 AS one FROM records",
        "SELECT id, r.* FROM records r",
        "SELECT _record, id FROM records",
        "SELECT r._record, id FROM records r",
        "SELECT r.id, q._record AS _record FROM records r",
    ],
)
def test_what_has_it_stays(sql: str) -> None:
    assert with_column(sql, "_record", ["records"]) == sql


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT id FROM records",
        "SELECT id FROM records GROUP BY id",
        "SELECT id FROM records UNION SELECT id FROM records",
        "SELECT id FROM records UNION ALL SELECT 1",
        "SELECT id FROM records INTERSECT SELECT id FROM records",
        "SELECT a.id FROM records a JOIN records b USING (id)",
        "SELECT id FROM other LEFT SEMI JOIN records ON true",
        "SELECT a FROM (SELECT id FROM records) AS t(a)",
        "SELECT id FROM other.records",
        "WITH records AS (SELECT 1 AS id) SELECT id FROM records",
        "WITH r(a) AS (SELECT id FROM records) SELECT a FROM r",
        "VALUES (1)",
        "SELECT 1",
        "SELECT id FROM ((records",
        "",
    ],
)
def test_what_cannot_have_it_or_is_not_understood_stays(sql: str) -> None:
    assert with_column(sql, "_record", ["records"]) == sql
