"""The application side of a share consumer: what runs on the user's thread, inside the public calls.

It knows the shared state, and no part of the network side.
"""
