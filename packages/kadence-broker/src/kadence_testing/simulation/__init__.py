"""Deterministic simulation: a whole group in one process under virtual time, by seed (G2).

`Simulation` runs your programs, written with `kadence.AsyncConsumer`, `kadence.AsyncShareConsumer` and
`kadence.AsyncProducer` as in production, with
their real network code, the real embedded broker and a simulated network. A simulated minute takes about a second.
"""

from __future__ import annotations

from kadence_testing.simulation.history import History
from kadence_testing.simulation.listener import Told
from kadence_testing.simulation.members import Handler, member, transformer, writer
from kadence_testing.simulation.network import Network
from kadence_testing.simulation.producer import SimulatedProducer
from kadence_testing.simulation.queue_member import QueueHandler, queue_member
from kadence_testing.simulation.scheduler import SimulationError
from kadence_testing.simulation.simulation import Action, Main, Program, Simulation

__all__ = [
    "Action",
    "Handler",
    "History",
    "Main",
    "Network",
    "Program",
    "QueueHandler",
    "SimulatedProducer",
    "Simulation",
    "SimulationError",
    "Told",
    "member",
    "queue_member",
    "transformer",
    "writer",
]
