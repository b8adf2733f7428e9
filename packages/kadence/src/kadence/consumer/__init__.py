"""The consumer: the public classes, the application side, `shared_state`, and the network side behind it.

`assembly` alone knows both sides.
"""
