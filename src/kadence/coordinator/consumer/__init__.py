"""Groups of the consumer protocol (KIP-848): the heartbeats of their members, and their target assignments.

The coordinator's front door calls the rules here with a `Shard`; what they decide they write as records, and `replay`
alone changes a `ConsumerGroup`.
"""
