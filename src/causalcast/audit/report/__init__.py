"""What a person reads of an audit: one HTML file that opens from disk, and its short forms for a terminal."""

from causalcast.audit.report.page import MAX_PAGE_BYTES, render_report, write_report
from causalcast.audit.report.terminal import finding_lines, summary_rows, summary_table
from causalcast.audit.report.words import MEANINGS, quantity

__all__ = [
    "MAX_PAGE_BYTES",
    "MEANINGS",
    "finding_lines",
    "quantity",
    "render_report",
    "summary_rows",
    "summary_table",
    "write_report",
]
