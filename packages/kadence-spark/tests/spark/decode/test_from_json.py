"""What the source makes of JSON is what ``from_json`` makes of it; ``make parity-json`` asks about more documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.decode import json_documents
from tests.spark.decode.from_json import Answers, differences, spark_answers
from tests.spark.decode.parity import MUTATED, questions

pytestmark = pytest.mark.shared_spark

ZONE = "America/New_York"


@pytest.fixture
def in_zone(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))


def same(expected: Answers, **options: str) -> None:
    """Compared with both readers. Java below 19 writes some numbers with another last digit: see docs/spark.md."""
    for compiled in (False, True):
        found = differences(expected, ZONE, compiled=compiled, **options)
        assert [each for each in found if b"1e23" not in each.document] == []


def test_values_of_all_types_and_odd_documents(in_zone: SparkSession) -> None:
    documents = json_documents.packed() + json_documents.whole() + json_documents.single(share=20)
    same(spark_answers(in_zone, documents + json_documents.mutated(7, 1_000), json_documents.SCHEMA))


@pytest.mark.parametrize("ddl", ["map<string,struct<a:int,b:string>>", "array<struct<a:int,b:string>>"])
def test_documents_that_are_no_objects(in_zone: SparkSession, ddl: str) -> None:
    same(spark_answers(in_zone, json_documents.roots(), ddl))


def test_options_of_from_json(in_zone: SparkSession) -> None:
    """All of them turned at once; ``make parity-json`` turns each alone."""
    options = {
        "allowComments": "true",
        "allowUnquotedFieldNames": "true",
        "allowSingleQuotes": "false",
        "allowNumericLeadingZeros": "true",
        "allowNonNumericNumbers": "false",
        "allowBackslashEscapingAnyCharacter": "true",
        "allowUnquotedControlChars": "true",
    }
    documents = json_documents.packed() + json_documents.whole()
    same(spark_answers(in_zone, documents, json_documents.SCHEMA, **options), **options)


def test_the_figures_in_the_docs_are_of_these_documents() -> None:
    page = (Path(__file__).parents[5] / "docs" / "spark.md").read_text(encoding="utf-8")
    said = page.partition("<!-- json: written by make parity-json -->")[2].partition("<!-- end of json -->")[
        0
    ]
    count = sum(len(each.documents) for each in questions(seed=1, mutated=MUTATED))
    assert f"{count:,} documents: " in said, "run make parity-json ARGS='--write docs/spark.md'"
