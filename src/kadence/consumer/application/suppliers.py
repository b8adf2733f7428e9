"""Who makes what a consumer needs and its application side does not import: the network side, a producer.

The front door (`kadence/__init__.py`) sets both, so the sides and the rooms do not know each other. It imports the
producer when the first one is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kadence.consumer.application.core import Engines
    from kadence.consumer.application.reading.dead_letters import LetterProducers

__all__ = ["letter_producer", "network_side"]

network_side: Engines
letter_producer: LetterProducers
