"""The application side of a consumer (C1): what runs on the user's thread.

Polls, commits, callbacks and the end, as generators of waits (`core`, `calls`), and the shells that carry them out.
Speaks with the network side through ``consumer.border`` only.
"""
