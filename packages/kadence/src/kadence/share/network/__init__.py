"""The network side of a share consumer (KIP-932): membership, sessions, fetches, acknowledgements, renewals.

Sans-IO: everything is told the time, and answers are brought to it.
"""
