"""One small Spark session for the sweeps of a worker."""

from tests.audit.conftest import spark

__all__ = ["spark"]
