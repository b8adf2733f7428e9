"""The group coordinator's side of share groups (KIP-932): members, their partitions, and administration.

What was read and acknowledged is the leaders' affair (`kadence_broker.share`); this room only asks them to begin, to
move or to forget a share-partition (`state`). Facts: Kafka 4.4.0's group coordinator, and a broker of that version.
"""
