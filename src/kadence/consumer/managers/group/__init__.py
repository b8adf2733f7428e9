"""Membership of a group: its coordinator, heartbeats, commits, and one room for each group protocol (B3, C4)."""
