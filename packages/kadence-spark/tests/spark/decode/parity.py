"""``make parity-json``: JSON as ``from_json`` reads it, and as the source does, of many thousand documents.

python -m tests.spark.decode.parity
python -m tests.spark.decode.parity --seed 5 --mutated 50000
python -m tests.spark.decode.parity --write docs/spark.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.spark.decode import json_documents
from tests.spark.decode.from_json import Difference, differences, spark_answers

from kadence_spark import session

ZONE = "America/New_York"
OTHER_ZONES = ("Europe/Dublin", "Asia/Kathmandu", "UTC")
TURNED = {
    "allowComments": "true",
    "allowUnquotedFieldNames": "true",
    "allowSingleQuotes": "false",
    "allowNumericLeadingZeros": "true",
    "allowNonNumericNumbers": "false",
    "allowBackslashEscapingAnyCharacter": "true",
    "allowUnquotedControlChars": "true",
}
MUTATED = 10_000
SHOWN = 20
"""So many differences are printed."""


@dataclass(frozen=True)
class Question:
    """Documents for one call of ``from_json``. label: in the table."""

    label: str
    documents: list[bytes]
    ddl: str
    zone: str
    options: dict[str, str]


def questions(seed: int, mutated: int) -> Iterator[Question]:
    """Each kind of document in turn; questions of one label are one line of the table."""
    schema, odd = json_documents.SCHEMA, json_documents.whole()
    both = json_documents.packed() + odd
    values, types = len(json_documents.values()), len(json_documents.FIELDS)
    yield Question(
        f"each of {values} values in a field of each of {types} types",
        json_documents.single(),
        schema,
        ZONE,
        {},
    )
    yield Question("documents that are odd as a whole", odd, schema, ZONE, {})
    hurt = json_documents.mutated(seed, mutated)
    yield Question("documents of several fields by chance, half of them hurt", hurt, schema, ZONE, {})
    for ddl in json_documents.ROOTS:
        label = f"documents for {len(json_documents.ROOTS)} schemas that are arrays and maps"
        yield Question(label, json_documents.roots(), ddl, ZONE, {})
    for zone in OTHER_ZONES:
        yield Question(f"values and odd documents in {', '.join(OTHER_ZONES)}", both, schema, zone, {})
    for name, value in TURNED.items():
        yield Question(
            f"the same with each of {len(TURNED)} options turned", both, schema, ZONE, {name: value}
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of the documents that are hurt at random")
    parser.add_argument("--mutated", type=int, default=MUTATED, help="how many of those")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the sums into this Markdown file")
    given = parser.parse_args()
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = session("parity-json", master="local[2]", conf=settings)
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")  # type: ignore[union-attr]
    counts: dict[str, list[int]] = {}
    found: dict[Difference, None] = {}
    for each in questions(given.seed, given.mutated):
        spark.conf.set("spark.sql.session.timeZone", each.zone)
        expected = spark_answers(spark, each.documents, each.ddl, **each.options)
        line = counts.setdefault(each.label, [0, 0, 0])
        line[0] += len(each.documents)
        for place, compiled in enumerate((True, False), start=1):
            other = differences(expected, each.zone, compiled=compiled, **each.options)
            line[place] += len(each.documents) - len(other)
            found |= dict.fromkeys(other)
    about = f"PySpark {spark.version}, Java {java}, session's zone {ZONE} where no other is named."
    spark.stop()
    rows = [
        "| documents | how many | the same | the same without the compiled reader |",
        "|---|---:|---:|---:|",
    ]
    rows += [
        f"| {label} | {all_:,} | {ours:,} | {plain:,} |" for label, (all_, ours, plain) in counts.items()
    ]
    print("\n".join([about, "", *rows, ""]))
    for each_difference in list(found)[:SHOWN]:
        print(each_difference.document[:200], "\n  from_json", each_difference.spark[:300])
        print("  ours     ", each_difference.ours[:300])
    if given.write:
        all_, ours, _ = map(sum, zip(*counts.values(), strict=True))
        write(
            given.write,
            f"{all_:,} documents: {ours:,} give the same row. {about}",
        )


def write(file: Path, body: str) -> None:
    """Between the markers."""
    begin, end = "<!-- json: written by make parity-json -->", "<!-- end of json -->"
    text = file.read_text()
    made = f"{begin}\n\n{body}\n\n{end}"
    file.write_text(re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: made, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
