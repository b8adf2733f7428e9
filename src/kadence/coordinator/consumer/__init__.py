"""Groups of the consumer protocol (KIP-848): what their members say in heartbeats, and who is to have what.

The coordinator's front door calls the rules here with a `Shard`; what they decide they write as records, and `replay`
alone changes a `ConsumerGroup`.
"""
