"""What can stop an audit before there is a verdict. Each error is one line that a person can act on."""

from __future__ import annotations


class AuditError(Exception):
    """Base of the errors below; `exit_code` is what the command line ends with."""

    exit_code = 2


class InputUnusable(AuditError):  # noqa: N818
    """There is nothing to judge: no such file, nothing readable in it, or no usable row."""

    exit_code = 2


class NoTraceFile(InputUnusable):
    """A folder has no trace file in it."""


class FolderNotShared(AuditError):  # noqa: N818
    """A worker does not see, or may not write to, the folder where values wait between stages."""


class BoxDamaged(AuditError):  # noqa: N818
    """What an earlier run left in its state folder cannot be read any more."""


class EnvironmentUnusable(AuditError):  # noqa: N818
    """Spark cannot run here: no suitable Java, or PySpark is not installed."""

    exit_code = 3
