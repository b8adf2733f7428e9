"""The share consumer (KIP-932): records of a queue, each with a lock, delivered to one member at a time.

It stands on the parts of the consumer that know neither positions nor commits. `network` decides what to send, and
runs on the network thread; `application` is the user's thread. They share `share_state`, and meet in `assembly`.
"""
