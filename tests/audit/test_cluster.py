"""The audit on a standalone cluster of several processes on loopback: master, worker, executor, driver."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from causalcast.audit.session import find_java
from tests.audit.test_trouble import PAIR, lines, log

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK = Path(pyspark.__file__).parent


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Start a master and a worker with two cores; yield the master's address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    # What other tests of this process have set for their sessions is not for this one: their quiet log says nothing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")} | {
        "SPARK_HOME": str(SPARK),
        "JAVA_HOME": str(find_java().resolve().parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[2] / "src"), *filter(None, sys.path)]),
    }
    run, deploy = str(SPARK / "bin" / "spark-class"), "org.apache.spark.deploy"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [
        [run, f"{deploy}.master.Master", "--port", str(port), *here],
        [run, f"{deploy}.worker.Worker", *here, "-c", "2", "-m", "1g", "-d", str(tmp_path / "work"), address],
    ]
    processes = []
    log_file = tmp_path / "cluster.log"
    try:
        for command, ready in zip(commands, ("New state: ALIVE", "Successfully registered"), strict=True):
            with log_file.open("ab") as output:
                processes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
            deadline = time.monotonic() + 120
            while ready not in log_file.read_text():
                assert time.monotonic() < deadline, log_file.read_text()
                assert processes[-1].poll() is None, log_file.read_text()
                time.sleep(0.1)
        yield address
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=30)


SCRIPT = """
import json, sys
from pathlib import Path
from causalcast.audit.pipeline import run_audit
from causalcast.audit.session import spark_session

trace, out = Path(sys.argv[1]), Path(sys.argv[2])
with spark_session(sys.argv[3]) as session:
    session.conf.set("spark.sql.shuffle.partitions", "1")
    for where in (None, out, out):
        steps = []
        found = run_audit([trace], out=where, progress=steps.append)
        print(json.dumps([found.counts, found.events, len(found.processes), found.quarantined, steps]))
        if where is out:
            with (trace / "c.jsonl").open("a") as file:
                file.write(sys.argv[4])
"""

AGAIN = """
import json, sys
from pathlib import Path
from causalcast.audit.pipeline import run_audit

trace, out, master = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
for name in "ab":
    steps = []
    found = run_audit([trace], out=out / "again", master=master, progress=steps.append)
    print(json.dumps([found.counts, found.events, found.deliveries, steps]))
    if name == "a":
        for process in "ab":
            with (trace / f"{process}.jsonl").open("a") as file:
                file.writelines(line + "\\n" for line in json.loads(sys.argv[4])[process])
assert found == run_audit([trace], out=out / "whole", master=master)
"""


def test_a_cluster_comes_to_the_verdict_of_local_mode_and_reads_what_is_new_only(master: str, tmp_path: Path) -> None:
    rows = [*PAIR, *log("c", "deliver b:1", "deliver a:1", "deliver a:2")]
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "a.jsonl").write_text("\n".join(lines(rows[:4])) + "\n")
    (trace / "c.jsonl").write_text("\n".join(lines(rows[6:8])) + "\n")
    pq.write_table(pa.Table.from_pylist(rows[4:6]), trace / "b.parquet")

    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(trace), str(tmp_path / "out"), master, lines(rows[8:])[0] + "\n"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    assert answer.returncode == 0, answer.stderr
    first, kept, later = (json.loads(line) for line in answer.stdout.splitlines())
    undelivered = {"causal-order": 1, "undelivered": 1}
    assert first[:4] == kept[:4] == [undelivered, 8, 3, 0]
    assert later[:4] == [{"causal-order": 1}, 9, 3, 0]
    assert re.search(r"Reading what is new: 1 of \d pieces", str(later[4]))
    # An executor of its own did the work.
    assert re.search(r"Launching ExecutorRunner|Asked to launch executor", (tmp_path / "cluster.log").read_text())


def test_a_later_run_goes_on_from_what_is_settled_on_a_cluster_too(master: str, tmp_path: Path) -> None:
    rows = {
        "a": lines(log("a", *(f"broadcast a:{number}" for number in range(1, 46)))),
        "b": lines(log("b", *(f"deliver a:{number}" for number in range(1, 46)))),
    }
    trace = tmp_path / "trace"
    trace.mkdir()
    for name, written in rows.items():
        (trace / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in written[:40]))
    rest = json.dumps({name: written[40:] for name, written in rows.items()})

    answer = subprocess.run(
        [sys.executable, "-c", AGAIN, str(trace), str(tmp_path), master, rest],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    assert answer.returncode == 0, answer.stderr
    first, later = (json.loads(line) for line in answer.stdout.splitlines())
    assert first[:3] == [{}, 80, 40]
    assert "Starting Spark" in first[3]
    assert later[:3] == [{}, 90, 45]
    assert "Judging what is new" in later[3]
    assert "Starting Spark" not in later[3]
