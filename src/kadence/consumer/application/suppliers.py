"""The makers of what a consumer needs and its application side must not import: the network side and a producer.

`kadence/__init__.py` sets both, so the two sides and the packages do not import each other. It imports the producer
when the first one is needed.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kadence.client.engine import Engine
    from kadence.config import ConsumerConfig
    from kadence.consumer.application.core import Engines
    from kadence.consumer.fetch.dead_letters import LetterProducers
    from kadence.consumer.shared_state import SharedState

__all__ = ["letter_producer", "network_side"]


class _NetworkSides:
    """Makes the network side of a new consumer where the program runs that asks for it.

    Attributes:
        real: with a thread and sockets. simulated: set in the context of a program that runs inside a simulation.
    """

    real: Engines

    def __init__(self) -> None:
        self.simulated: ContextVar[Engines | None] = ContextVar("simulated", default=None)

    def __call__(self, config: ConsumerConfig, *, awaits: bool) -> tuple[SharedState, Engine]:
        """For a consumer whose calls are awaited, or block their thread.

        Raises:
            IllegalStateError: they block, in a simulation, where nothing else happens meanwhile.
            RuntimeError: they are awaited, and no event loop is running.
        """
        simulated = self.simulated.get()
        if simulated is not None and not awaits:
            # The front door loads this module: it brings nothing along that is not needed yet.
            from kadence.errors import IllegalStateError

            raise IllegalStateError(
                "a program of a simulation cannot use Consumer, which blocks; use AsyncConsumer"
            )
        if awaits:
            from kadence.idioms import running_loop

            # Before the network side is made: somebody would have to end it.
            running_loop("AsyncConsumer")
        return (simulated or self.real)(config)


network_side = _NetworkSides()
letter_producer: LetterProducers
