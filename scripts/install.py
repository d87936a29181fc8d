"""Install causalcast and some of its extras into the environment that runs this, on one line of progress.

    .venv/bin/python scripts/install.py audit,speed

pip's own output goes to build/install.log; its last lines are shown when it fails. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT / "build" / "install.log"
WIDTH = 100
QUIET_SECONDS = 15


class Progress:
    """One line that is rewritten on a terminal; elsewhere a line now and then."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.shown = self.started
        print(f"{title} ...", end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def show(self, news: str) -> None:
        """Show what is being done."""
        now = time.monotonic()
        if self.terminal:
            line = f"{self.title} ... {now - self.started:3.0f} s  {news}"
            print(f"\r\x1b[2K{line[:WIDTH]}", end="", file=sys.stderr, flush=True)
        elif now - self.shown > QUIET_SECONDS:
            self.shown = now
            print(f"  {now - self.started:3.0f} s  {news}", file=sys.stderr, flush=True)

    def end(self, word: str) -> None:
        """Close the line."""
        start = f"\r\x1b[2K{self.title} ... " if self.terminal else "  "
        print(f"{start}{word}, {time.monotonic() - self.started:.0f} s", file=sys.stderr, flush=True)


def pip_install(title: str, *arguments: str) -> bool:
    """Run pip with these arguments; on failure show the end of its log and return false."""
    LOG.parent.mkdir(exist_ok=True)
    progress = Progress(title)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", *arguments]
    with (
        LOG.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as pip,
    ):
        for line in pip.stdout or ():
            log.write(line)
            log.flush()
            if line.strip() and not line.startswith("Requirement already"):
                progress.show(line.strip()[:WIDTH])
    if pip.returncode == 0:
        progress.end("done")
        return True
    progress.end("failed")
    tail = LOG.read_text().splitlines()[-8:]
    print(*(f"  {line}" for line in tail), f"  (all of it: {LOG})", sep="\n", file=sys.stderr)
    return False


def apt_install(*packages: str) -> bool:
    """Run apt-get as root, or through sudo where that asks for no password."""
    apt = shutil.which("apt-get")
    if apt is None:
        return False
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    print(f"Installing {' '.join(packages)} ...", file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        try:
            done = subprocess.run([*root, apt, "-qq", *step], env=environment, check=False, stdout=subprocess.DEVNULL)
        except OSError:
            return False
        if done.returncode != 0:
            return False
    return True


def main() -> int:
    """Install the package, editable, with the extras named on the command line."""
    extras = sys.argv[1]
    return 0 if pip_install(f"Installing causalcast [{extras}]", "--editable", f".[{extras}]") else 1


if __name__ == "__main__":
    sys.exit(main())
