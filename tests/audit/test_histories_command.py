"""The commands `import` and `history`, in real processes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import assert_one_line, run
from tests.trace.public_logs import EXCERPTS

DATA = Path(__file__).with_name("data")


def test_the_exit_status_is_the_verdict(tmp_path: Path) -> None:
    open_ = tmp_path / "open.txt"
    open_.write_text("w x 1\n=\nw x 1\n=\nr x 1\n")
    good, bad = DATA / "awdit_causal_long-fork.txt", DATA / "awdit_read-atomic_biswas-enea.txt"

    answers = {str(path): run("history", str(path), "--json") for path in (good, bad, open_)}

    assert [done.returncode for done in answers.values()] == [0, 1, 2]
    told = [json.loads(done.stdout)["verdict"] for done in answers.values()]
    assert told == ["pass", "fail", "undecided"]
    shown = run("history", str(bad))
    assert "stale-read (writes-follow-reads)" in shown.stdout
    assert f"{bad}:8" in shown.stdout


def test_unusable_histories_and_logs_end_in_one_line(tmp_path: Path) -> None:
    done = run("history", str(tmp_path / "none.edn"))
    assert done.returncode == 2
    assert "none.edn: No such file" in done.stderr.splitlines()[-1]

    log = str(EXCERPTS / "shiviz_chord.log")
    assert_one_line(
        run("import", "shiviz", log, "--regex", "(", "--out", str(tmp_path / "a")), 2, "no regular expression"
    )
    assert_one_line(run("import", "tla", log, "--out", str(tmp_path / "b")), 2, "none of 240 rows can be used")
    assert_one_line(run("import", "tla", log, "--regex", "x", "--out", str(tmp_path / "c")), 2, "only for shiviz")
    assert_one_line(run("import", "tla", log, "--field", "x=y", "--out", str(tmp_path / "d")), 2, "--field")


def test_an_import_says_what_it_wrote(tmp_path: Path) -> None:
    done = run("import", "shiviz", str(EXCERPTS / "shiviz_chord.log"), "--out", str(tmp_path / "out"))

    assert done.returncode == 0
    assert "120 events with clocks" in done.stdout
    assert (tmp_path / "out" / "clocks.import").is_file()
