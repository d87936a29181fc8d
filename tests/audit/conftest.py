"""One small Spark session for all audit tests of a worker, started when the first of them needs it; or none at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.audit import pipeline
from causalcast.audit.continued import Continuation
from causalcast.audit.session import spark_session
from tests.audit import unsparked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[1]") as session:
        session.conf.set("spark.sql.shuffle.partitions", "1")
        session.conf.set("spark.sql.adaptive.enabled", "false")
        yield session


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Run the stages in this process, without a JVM; note of each run with a state whether it went on from there."""
    monkeypatch.setattr(pipeline, "spark_session", unsparked.session)
    noted: list[bool] = []
    run = Continuation.run

    def noting(self: Continuation, *arguments: Any) -> Any:
        before = bool(self.kept.manifest.files)
        found = run(self, *arguments)
        if before:
            noted.append(found is not None)
        return found

    monkeypatch.setattr(Continuation, "run", noting)
    return noted
