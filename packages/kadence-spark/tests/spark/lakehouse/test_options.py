from __future__ import annotations

import pytest

from kadence.errors import ConfigError
from kadence_spark.lakehouse.options import hidden, parse
from kadence_spark.stamp import Stamp


def test_what_is_understood() -> None:
    made = parse(
        {
            "path": "/t",
            "partitionBy": "a, b",
            "mergeSchema": "TRUE",
            "storage.aws_secret_access_key": "s3cret",
        }
        | {"txnAppId": "app", "txnVersion": "7"},
        "delta",
        streaming=False,
    )
    assert (made.place, made.partition_by, made.merge_schema) == ("/t", ("a", "b"), True)
    assert made.stamp == Stamp("app", 7)
    assert made.settings == {"aws_secret_access_key": "s3cret"}
    assert "s3cret" not in repr(made)
    assert hidden("no s3cret here", made.settings) == "no *** here"


def test_a_password_within_an_address_is_hidden_by_itself() -> None:
    settings = {"uri": "postgresql+psycopg2://me:p%40ss-word@host/db", "type": "sql"}
    said = "login of me with p@ss-word (p%40ss-word) at host failed; sql"
    assert hidden(said, settings) == "login of me with *** (***) at host failed; sql"


def test_a_stream_has_options_of_spark_beside_its_own() -> None:
    made = parse(
        {"table": "a.b", "catalog": "prod", "catalog.uri": "u", "checkpointLocation": "/c", "queryName": "q"},
        "iceberg",
        streaming=True,
    )
    assert (made.place, made.catalog, made.settings) == ("a.b", "prod", {"uri": "u"})
    assert made.stamp is None


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("delta", {}, "option path is missing: the table: a directory"),
        ("iceberg", {"path": "t"}, "take no path: name the table with the option table"),
        ("iceberg", {}, "option table is missing"),
        (
            "delta",
            {"path": "t", "mergeschem": "true"},
            "unknown option 'mergeschem': did you mean 'mergeSchema'",
        ),
        ("delta", {"path": "t", "zzz": "true"}, "known are path, partitionBy"),
        ("delta", {"path": "t", "partitionBy": "a, b,a"}, "option partitionBy names a twice"),
        ("delta", {"path": "t", "mergeSchema": "yes"}, "'yes' is not true or false"),
        ("delta", {"path": "t", "txnAppId": "a"}, "go together"),
        ("delta", {"path": "t", "txnAppId": "a", "txnVersion": "-1"}, "'-1' is not a number"),
    ],
)
def test_what_is_refused(kind: str, given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(given, kind, streaming=False)


def test_a_stream_needs_no_number() -> None:
    with pytest.raises(ConfigError, match="txnAppId and txnVersion are for batches"):
        parse({"path": "t", "txnAppId": "a", "txnVersion": "1"}, "delta", streaming=True)
