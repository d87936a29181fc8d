"""The trace: its schema, writers and readers."""

from causalcast.trace.schema import EVENTS, MEMBERSHIP_EVENTS, MESSAGE_EVENTS, SCHEMA_VERSION, TraceEvent

__all__ = ["EVENTS", "MEMBERSHIP_EVENTS", "MESSAGE_EVENTS", "SCHEMA_VERSION", "TraceEvent"]
