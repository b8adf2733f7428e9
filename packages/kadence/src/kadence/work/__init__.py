"""Work: from a record to a handled record (rules H1 to H13 of docs/DESIGN.md): `Consumer.process`.

scheduler, rounds, frontier, retry and letters decide, without I/O, threads or clocks. The loop and the workers share
`desk`, under one lock. `processing` is the loop, a generator for both shells; workers run handlers. With transactions
`transactional` replaces desk and loop. This package does not import the consumer: the consumer's shells drive it.
"""

from kadence.work.context import Context
from kadence.work.letters import ProducerRecord
from kadence.work.meters import Totals
from kadence.work.retry import Retry
from kadence.work.track import Work

__all__ = ["Context", "ProducerRecord", "Retry", "Totals", "Work"]
