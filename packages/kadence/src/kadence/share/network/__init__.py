"""The network side of a share consumer (KIP-932): membership, sessions, fetches, acknowledgements, renewals.

Sans-IO: callers give the time to everything here, and bring the answers.
"""
