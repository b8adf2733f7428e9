"""The network thread (C1): the loop, and what stands between the border, the managers and the client.

Everything here and in ``managers`` and ``state`` runs on that one thread and is built on it.
"""
