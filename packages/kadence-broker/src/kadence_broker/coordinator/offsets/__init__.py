"""Committed offsets of groups of every kind: OffsetCommit, OffsetFetch, OffsetDelete, expiry, transactions."""
