"""Membership of a group: its coordinator, heartbeats, commits, and one room for each group protocol (B, C4)."""
