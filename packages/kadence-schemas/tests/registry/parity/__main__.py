"""``make parity-schemas``: random schemas and other versions of them, written by others than Kadence, read by it.

python -m tests.registry.parity
python -m tests.registry.parity --seed 5 --documents 100000

Of ten documents four are Avro, three Protobuf and three JSON. It ends with 1 if a difference is not in the table of
`differences`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from tests.registry.parity import avro, json_schema, protobuf
from tests.registry.parity.counted import Counted
from tests.registry.parity.differences import KNOWN
from tests.registry.parity.java import Java
from tests.registry.parity.registered import Registered

from kadence_spark import session
from kadence_testing.schema_registry import SchemaRegistryServer

SHOWN: Final = 20
"""So many differences are printed, one of each schema and reader."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of all chance")
    parser.add_argument("--documents", type=int, default=20_000, help="how many are read")
    given = parser.parse_args()
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = session("parity-schemas", master="local[1]", conf=settings)
    counted, chance = Counted(), Random(given.seed)
    with (
        SchemaRegistryServer() as server,
        Registered(server) as registered,
        TemporaryDirectory() as directory,
    ):
        part = given.documents // 10
        protobuf.run(registered, chance, 3 * part, counted, Path(directory))
        json_schema.run(registered, chance, 3 * part, counted)
        avro.run(Java(spark._jvm), registered, chance, given.documents - 6 * part, counted)
        print(f"{counted.documents:,} documents, written by {registered.writer} and Avro for Java")
    spark.stop()
    show(counted)
    sys.exit(bool(counted.unexplained))


def show(counted: Counted) -> None:
    """The figures, the known differences and those that nobody has explained."""
    for reader, count in counted.answers.items():
        print(f"{count:8,} the same: {reader}")
    for line in KNOWN:
        print(f"{counted.known[line.text]:8,} known: {line.format}: {line.text}")
    print(f"{len(counted.unexplained):8,} unexplained")
    shown: set[tuple[str, str, str]] = set()
    for each in counted.unexplained:
        about = each.reader, each.writer, each.schema
        if about not in shown and len(shown) < SHOWN:
            shown.add(about)
            print(each)


if __name__ == "__main__":
    main()
