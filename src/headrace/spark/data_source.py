"""What the formats have in common: one line for a mode or a schema that they do not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .errors import SourceError, one_line_errors
from .worker_check import CheckedInExecutors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_format(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a format, so that Spark need not look for it."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # pyspark 4.0 refuses to replace a source that Spark has found itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class KafkaDataSource(CheckedInExecutors, DataSource):
    """A format. A subclass overrides the modes that it has, and calls :meth:`check_columns`."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuse to be read as a batch."""
        self._refuse("cannot be read as a batch: use spark.readStream")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Refuse to be read as a stream."""
        self._refuse("cannot be read as a stream: use spark.read")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse a batch of rows."""
        self._refuse("does not take rows of a batch: kafka-produce writes records")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Refuse the rows of a stream."""
        self._refuse("does not take rows of a stream: kafka-produce writes records")

    def check_columns(self, schema: StructType, columns: str) -> None:
        """Check that the user asked for no columns but those of the source.

        :param columns: as DDL
        :raises SourceError: ``schema`` has others
        """
        fields = (f"{field.name} {field.dataType.simpleString()}" for field in schema)
        if ",".join(fields) != re.sub("([:,]) ", r"\1", columns):
            self._refuse("has columns of its own: remove schema(), and use select() and cast()")

    def _refuse(self, reason: str) -> NoReturn:
        with one_line_errors():
            raise SourceError(f"{self.name()} {reason}")
