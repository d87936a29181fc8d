"""The trace: its schema, writers and readers."""

from causalcast.trace.reader import OtherSchemaError, TraceReadError, read_jsonl, read_parquet
from causalcast.trace.schema import EVENTS, MEMBERSHIP_EVENTS, MESSAGE_EVENTS, SCHEMA_VERSION, TraceEvent
from causalcast.trace.writer import JsonLinesWriter, ParquetWriter, TraceSink, TraceWriteError

__all__ = [
    "EVENTS",
    "MEMBERSHIP_EVENTS",
    "MESSAGE_EVENTS",
    "SCHEMA_VERSION",
    "JsonLinesWriter",
    "OtherSchemaError",
    "ParquetWriter",
    "TraceEvent",
    "TraceReadError",
    "TraceSink",
    "TraceWriteError",
    "read_jsonl",
    "read_parquet",
]
