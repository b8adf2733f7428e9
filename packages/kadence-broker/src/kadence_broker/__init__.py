"""The embedded broker: Kafka's protocol on TCP, in memory or with a data directory. `Broker` is the public class.

It never imports the consumer, and the consumer never imports it: they communicate through a socket only.
"""

from __future__ import annotations

from kadence_broker.broker import Broker
from kadence_broker.faults import Faults, Frozen, Injected, Observed, Only
from kadence_broker.server.sasl import ValidToken
from kadence_broker.server.security import TlsFiles
from kadence_broker.service import Call

__all__ = ["Broker", "Call", "Faults", "Frozen", "Injected", "Observed", "Only", "TlsFiles", "ValidToken"]
