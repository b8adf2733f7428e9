"""Queues: consumers of share groups (KIP-932).

It stands on the consumer's seams (docs/DESIGN.md), and knows no fetch positions and no commits.
"""
