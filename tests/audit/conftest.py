"""One small Spark session for all audit tests of a worker, started when the first of them needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causalcast.audit.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]") as session:
        session.conf.set("spark.sql.shuffle.partitions", "1")
        session.conf.set("spark.sql.adaptive.enabled", "false")
        yield session
