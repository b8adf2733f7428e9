"""The application side of a consumer (C1): the code that runs on the user's thread.

`core` and `calls` implement polls, commits, callbacks and closing as generators of waits; the shells run them. This
side communicates with the network side through ``consumer.shared_state`` only.
"""
