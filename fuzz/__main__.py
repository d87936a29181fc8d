"""`python -m fuzz`: coverage-guided fuzzing of a member's decoder, handshake and processes, by Atheris (libFuzzer).

Inputs begin as what three members say to each other, and are changed for as long as that reaches new code. An input is
a find if it makes anything but a `LinkError` end its connection, makes tables grow by more than its bytes, takes memory
beyond `--rss-mb`, or leaves a member that does not serve its application any more. Exit status: 0 nothing was found, 1
something was, and lies under `--out`; 2 it cannot run.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT = Path("build/fuzz")


def fuzz(target: str, options: argparse.Namespace) -> None:
    """Fuzz one target; ends the process."""
    try:
        import atheris  # noqa: PLC0415 - replays, and whoever asks for help, need none
    except ImportError:
        sys.exit("fuzz: Atheris is not installed: pip install 'atheris>=3.0' (Linux on x86-64, Python 3.11 to 3.13)")
    with atheris.instrument_imports(include=["causalcast"], enable_loader_override=False):
        from fuzz.member import Target, seeds  # noqa: PLC0415 - what is imported here is instrumented
    logging.disable()
    folder: Path = options.out / target
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    hello, found = seeds(target)
    for number, seed in enumerate(found):
        (corpus / f"seed-{number:03}").write_bytes(seed)
    bounds = [f"-max_total_time={options.seconds}"] if options.runs is None else [f"-runs={options.runs}"]
    arguments = [
        sys.argv[0], *bounds, f"-seed={options.seed}", "-max_len=4096", "-timeout=20",
        f"-rss_limit_mb={options.rss_mb}", f"-artifact_prefix={folder}/", "-print_final_stats=1", str(corpus),
    ]  # fmt: skip
    atheris.Setup(arguments, Target(target, hello).run)
    atheris.Fuzz()


def replay(target: str, path: Path) -> None:
    """Run one input that was found."""
    from fuzz.member import Target, seeds  # noqa: PLC0415 - see `fuzz`

    hello, _ = seeds(target)
    Target(target, hello).run(path.read_bytes())
    print(f"fuzz: {target} bears {path}")


def _each(targets: Sequence[str], options: argparse.Namespace) -> int:
    """Each target in a process of its own, since libFuzzer ends the one that it runs in."""
    worst = 0
    for target in targets:
        command = [sys.executable, "-m", "fuzz", target, "--seed", str(options.seed), "--out", str(options.out)]
        command += ["--rss-mb", str(options.rss_mb)]
        command += ["--seconds", str(options.seconds)] if options.runs is None else ["--runs", str(options.runs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        lines = done.stdout.splitlines()
        if done.returncode:
            print("\n".join(lines[-40:]))
            print(f"{target}: FOUND something; the input is in {options.out / target}")
            worst = 1
        else:
            reached = [line for line in lines if "cov:" in line]
            runs = next((line.split()[-1] for line in lines if "number_of_executed_units" in line), "?")
            print(f"{target}: nothing found in {int(runs):,} runs; {_coverage(reached[-1] if reached else '')}")
    return worst


def _coverage(line: str) -> str:
    words = line.split()
    figures = {name.rstrip(":"): value for name, value in itertools.pairwise(words) if name.endswith(":")}
    return f"{figures.get('cov', '?')} branches reached by {figures.get('corp', '?').partition('/')[0]} inputs"


def main() -> None:
    """Parse the command line, and fuzz."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("target", nargs="?", choices=TARGETS, help="one of them; all, one after another, if left out")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, help="inputs for each target, in place of seconds")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer's own draws")
    parser.add_argument("--rss-mb", type=int, default=1024, help="memory that the process may have")
    parser.add_argument("--out", type=Path, default=OUT, help="where inputs are kept")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this input of the target again")
    options = parser.parse_args()
    if options.replay is not None:
        if options.target is None:
            parser.error("--replay needs the target")
        replay(options.target, options.replay)
    elif options.target is not None:
        fuzz(options.target, options)
    else:
        sys.exit(_each(list(TARGETS), options))


if __name__ == "__main__":
    main()
