"""The consumer: the application side in this folder, `shared_state` in the middle, `network` and `managers` behind it.

`assembly` alone knows both sides.
"""
