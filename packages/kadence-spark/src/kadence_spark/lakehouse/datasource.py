"""``format("kadence-delta")`` and ``format("kadence-iceberg")``, the classes that Spark loads.

Spark finds one class in each package named ``pyspark_*``, so there are two such packages. Every application that looks
for a source imports them, so each method imports the modules that it needs.
"""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from kadence.errors import ConfigError

__all__ = ["DeltaSource", "IcebergSource"]


class _Lakehouse(DataSource):
    _kind: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """Not the name of the format's own jar: both can be used side by side."""
        return f"kadence-{cls._kind}"

    def schema(self) -> StructType | str:
        """Asked for by load()."""
        raise ConfigError(
            f"format '{self.name()}' writes tables; read them with the {self._kind} reader of your choice"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of a batch query."""
        from kadence_spark.lakehouse.options import parse
        from kadence_spark.lakehouse.writers import BatchWriter

        options = parse(self.options, self._kind, streaming=False)
        return BatchWriter(self._kind, options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Of a streaming query."""
        from kadence_spark.lakehouse.options import parse
        from kadence_spark.lakehouse.writers import StreamWriter

        options = parse(self.options, self._kind, streaming=True)
        return StreamWriter(self._kind, options, schema, overwrite=overwrite)


class DeltaSource(_Lakehouse):
    """Delta tables, by deltalake."""

    _kind = "delta"


class IcebergSource(_Lakehouse):
    """Iceberg tables, by PyIceberg."""

    _kind = "iceberg"
