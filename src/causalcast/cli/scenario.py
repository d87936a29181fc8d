"""What the options of `causalcast simulate` say: its network, workload and faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from causalcast.cli.errors import CommandError
from causalcast.simulation import (
    NS_PER_MS,
    AnyWorkload,
    Broadcasts,
    Fault,
    Network,
    draw_faults,
    parse_delay,
    process_names,
    read_matrix,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def network_of(file: Path | None, delay: str | None, matrix: Path | None, reorder: bool) -> Network:
    """The network of `file`, or the default one, with what the other options change."""
    network = _read(file, Network) if file is not None else Network()
    changes: dict[str, Any] = {}
    if delay is not None:
        changes["delay"] = parse_delay(delay)
    if matrix is not None:
        changes["matrix"] = read_matrix(matrix)
    if reorder:
        changes["fifo"] = False
    return msgspec.structs.replace(network, **changes)


def workload_of(file: Path | None, messages: int, senders: int | None, interval: str | None) -> AnyWorkload:
    """The workload of `file`, or broadcasts as the other options say."""
    if file is not None:
        if senders is not None or interval is not None:
            raise CommandError("--workload says who broadcasts when: leave out --senders and --interval", 2)
        workload: AnyWorkload = _read(file, AnyWorkload)
        return workload
    if interval is None:
        return Broadcasts(messages, senders=senders)
    return Broadcasts(messages, parse_delay(interval), senders=senders)


def faults_of(text: str | None, nodes: int, seed: int) -> Sequence[Fault]:
    """The faults of a file, or those of `random:N:MS`."""
    if text is None:
        return ()
    if not text.startswith("random:"):
        faults: tuple[Fault, ...] = _read(Path(text), tuple[Fault, ...])
        return faults
    try:
        count, within_ms = map(int, text.removeprefix("random:").split(":"))
    except ValueError:
        raise CommandError(f"--faults: {text!r} does not have the form random:N:MS, whole numbers", 2) from None
    return draw_faults(process_names(nodes), seed=seed, count=count, within_ns=within_ms * NS_PER_MS)


def _read(file: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{file}: {error}", 2) from error
