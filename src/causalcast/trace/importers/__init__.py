"""Importers: traces of other systems, turned into schema 1 and into clocked events.

Each importer is a generator over one file. It yields `TraceEvent`s (what the audit judges as broadcasts and
deliveries), `ClockedEvent`s (what carries a vector clock of its own, or names its causes) and `Rejected` rows (what
could not be used, with file, line and reason). `write_import` puts them into a folder that `causalcast audit` reads.
"""

from causalcast.trace.importers.items import (
    CLOCKS_FILE,
    MAX_LINE_BYTES,
    MAX_LOG_BYTES,
    REJECTED_FILE,
    ClockedEvent,
    ImportUnusable,
    Item,
    Rejected,
)
from causalcast.trace.importers.opentelemetry import opentelemetry
from causalcast.trace.importers.schema1 import schema1
from causalcast.trace.importers.shiviz import ShivizPatterns, shiviz
from causalcast.trace.importers.sink import Imported, write_import
from causalcast.trace.importers.tla import TlaFields, tla

__all__ = [
    "CLOCKS_FILE",
    "MAX_LINE_BYTES",
    "MAX_LOG_BYTES",
    "REJECTED_FILE",
    "ClockedEvent",
    "ImportUnusable",
    "Imported",
    "Item",
    "Rejected",
    "ShivizPatterns",
    "TlaFields",
    "opentelemetry",
    "schema1",
    "shiviz",
    "tla",
    "write_import",
]
