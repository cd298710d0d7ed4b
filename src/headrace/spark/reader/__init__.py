"""The common reader of all sources: ranges of offsets in, Arrow record batches out.

Spark tasks fetch record batches over headrace's own connections and decode them as columns, without
librdkafka and without a Python object per record (``docs/decisions/0007``).
:mod:`~headrace.spark.reader.log_reader` is the entrance. Below it,
:mod:`~headrace.spark.reader.fetcher` gets the bytes from the brokers,
:mod:`~headrace.spark.reader.batches` finds the record batches in them, and
:mod:`~headrace.spark.reader.columns` decodes their records.
"""
