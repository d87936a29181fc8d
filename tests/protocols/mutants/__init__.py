"""Stacks with one mistake put in, to show that the explorer finds it.

A mutant is the text of an ordering module with a few replacements, compiled as a module of its own. Each old text must
occur exactly once, so a change of the protocol that a mutant no longer fits is noticed.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from causalcast.protocols import STACKS

if TYPE_CHECKING:
    from causalcast.protocols import Stack

ORDERINGS = {
    "tcb": ("tcb", "TCB"),
    "cbcast": ("cbcast", "CBCAST"),
    "tcb-delivery": ("tcb_delivery", "TCBDelivery"),
    "vv": ("vv", "VV"),
    "vv-stable": ("vv_stable", "StableVV"),
    "vv-classical": ("vv", "ClassicalVV"),
    "vv-classical-stable": ("vv_stable", "StableClassicalVV"),
}
"""The module of each stack's ordering, and its class."""


@dataclass(frozen=True)
class Mutant:
    name: str
    stack: str
    edits: tuple[tuple[str, str], ...]
    breaks: frozenset[str]
    """What may be found first; the explorer checks all that the stack promises."""
    nodes: int = 3
    broadcasts: int | tuple[int, ...] = 2
    case: dict[str, Any] = field(default_factory=dict)
    """Further settings of the case in which it is found."""


@cache
def _module(name: str, base: str, edits: tuple[tuple[str, str], ...]) -> ModuleType:
    spec = importlib.util.find_spec(f"causalcast.protocols.ordering.{base}")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, f"mutant {name}: {text.count(old)} times in {base}.py: {old}"
        text = text.replace(old, new)
    module = ModuleType(f"tests.protocols.mutants.made_{base}_{name.replace('-', '_')}")
    sys.modules[module.__name__] = module
    exec(compile(text, f"<mutant {base} {name}>", "exec"), module.__dict__)
    return module


def mutated(mutant: Mutant) -> Stack:
    """The stack with the mistake in it; promises what the real one does."""
    base, name = ORDERINGS[mutant.stack]
    ordering = getattr(_module(mutant.name, base, mutant.edits), name)
    return replace(STACKS[mutant.stack], ordering=ordering, wire_types=ordering.wire_types)
