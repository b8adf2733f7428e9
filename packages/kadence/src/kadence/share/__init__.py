"""Queues: consumers of share groups (KIP-932), whose records have a lock each, and one member at a time.

It stands on the consumer's seams (docs/DESIGN.md), and knows no fetch positions and no commits. `network` decides what
to send, on the network thread; `application` is the user's thread. They share `share_state`, and meet in `assembly`.
"""
