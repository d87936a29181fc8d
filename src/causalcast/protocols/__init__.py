"""Sans-I/O protocols: membership, dissemination, ordering, and the port to their host."""

from causalcast.protocols.layers import BaseProcess, Dissemination, Layer, Membership
from causalcast.protocols.port import BroadcastMessage, Port, Process, Random, Timer, WireMessage
from causalcast.protocols.registry import DEFAULT_STACK, STACKS, stack
from causalcast.protocols.stack import PROPERTIES, Stack, StackProcess

__all__ = [
    "DEFAULT_STACK",
    "PROPERTIES",
    "STACKS",
    "BaseProcess",
    "BroadcastMessage",
    "Dissemination",
    "Layer",
    "Membership",
    "Port",
    "Process",
    "Random",
    "Stack",
    "StackProcess",
    "Timer",
    "WireMessage",
    "stack",
]
