"""``format("kadence")``, the class that Spark loads. It passes Spark's calls on to `source` and `sink`.

Three processes have a reader. One plans and pickles it; the executors get that copy; and a third, the query's runner,
builds another one and asks it for offsets. So ``__init__`` holds values only, and ``read`` gets results of the driver
only through its partition.

Spark starts one process to find this class, another to make an instance, and two more for a reader. So each method
imports only the modules that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from kadence.errors import ConfigError, MissingDependencyError
from kadence_spark.table import FOR_READING, METADATA, NO_OPTIONS, kept_in, options_of_new_table
from kadence_spark.worker_log import log_as_spark_does

__all__ = ["KadenceDataSource"]


class KadenceDataSource(DataSource):
    """Kafka topics as tables and streams, with the options and columns of Spark's own Kafka connector."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # At this point Spark has not decided between reading and writing.
        self._is_checked = False

    @classmethod
    def name(cls) -> str:
        """Not "kafka", which is the name of Spark's connector: both can be used side by side."""
        return "kadence"

    def schema(self) -> StructType | str:
        """All columns. Asked for by load(), and never before a write.

        Kafka's columns are a type, because Spark would load its SQL parser for a text. Decoded ones are a text, the
        form in which users and registries give them.
        """
        log_as_spark_does()
        from kadence_spark.decode.options import parse as parse_decoding
        from kadence_spark.source.schema import COLUMNS, all_columns

        table = options_of_new_table(self.options)
        given = self._checked(self.options if table is None else table)
        with_headers = given.get("includeheaders", "false").strip().lower() == "true"
        columns = all_columns() if with_headers else COLUMNS
        decode = parse_decoding(given)
        if decode is None:
            made = StructType()
            for name, kind in columns.items():
                is_first = not made.fields
                made.add(name, _TYPES[kind], metadata={METADATA: table} if table and is_first else None)
            return made
        from kadence_spark.decode.inference import decoded_ddl

        return decoded_ddl(decode, self.options, columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch query."""
        log_as_spark_does()
        from kadence_spark.source.options import parse
        from kadence_spark.source.reads import BatchReader

        return BatchReader(parse(self._checked(self._options_with(schema)), streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Of a streaming query. Its first call raises errors about options.

        Raises:
            MissingDependencyError: PySpark is older than 4.2. Older ones do not give a restarted source its offset, and
                run an availableNow query as one unbounded batch.
        """
        log_as_spark_does()
        from kadence_spark.source.reads import spark_version

        if spark_version() < (4, 2):
            raise MissingDependencyError(
                "streaming queries of format 'kadence' need PySpark 4.2 or newer; batch queries work with this one"
            )
        from kadence_spark.job_files import find_job_files
        from kadence_spark.source.options import parse
        from kadence_spark.source.stream_reader import RefusedReader, StreamReader

        find_job_files()
        try:
            return StreamReader(parse(self._checked(self._options_with(schema)), streaming=True), schema)
        except ConfigError as problem:
            return RefusedReader(problem)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of a batch query.

        Args:
            schema: of the rows. overwrite: the save mode; a topic can only be appended to.
        """
        log_as_spark_does()
        from kadence_spark.sink.options import parse
        from kadence_spark.sink.writers import BatchWriter

        if not self.options or options_of_new_table(self.options) is not None:
            raise ConfigError(FOR_READING)
        return BatchWriter(parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Of a streaming query.

        Raises:
            MissingDependencyError: PySpark is older than 4.1, which has no stream writer for Arrow batches.
        """
        log_as_spark_does()
        from kadence_spark.source.reads import spark_version

        if spark_version() < (4, 1):
            raise MissingDependencyError(
                "streaming writes of format 'kadence' need PySpark 4.1 or newer; batch writes work with this one"
            )
        from kadence_spark.sink.options import parse
        from kadence_spark.sink.stream_writer import StreamWriter

        return StreamWriter(parse(self.options, streaming=True), schema)

    def _options_with(self, schema: StructType) -> Mapping[str, str]:
        """The options of the query, and of the table if it reads one."""
        if "kafka.bootstrap.servers" in self.options:
            return self.options
        return kept_in(schema) | dict(self.options)

    def _checked(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Raise errors that do not depend on batch or stream at load(), not in the first task. Once for a query."""
        if not self._is_checked:
            from kadence_spark.source.options import read_client

            if not given:
                raise ConfigError(NO_OPTIONS)
            read_client(given).tell()
            self._is_checked = True
        return given


_TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<struct<key:string,value:binary>>": ArrayType(
        StructType().add("key", StringType()).add("value", BinaryType())
    ),
}
"""Spark's types for the type names in `kadence_spark.source.schema`."""
