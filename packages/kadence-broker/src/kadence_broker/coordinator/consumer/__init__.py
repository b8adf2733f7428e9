"""Groups of the consumer protocol (KIP-848): the heartbeats of their members, and their target assignments.

`GroupCoordinator` calls the rules here with a `Shard`; they write their decisions as records, and `replay`
alone changes a `ConsumerGroup`.
"""
