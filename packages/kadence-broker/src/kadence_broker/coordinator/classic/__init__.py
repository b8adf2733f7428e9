"""Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-62, KIP-345, KIP-394).

The record of a group is its last assigned generation (`storing`). The phases of a rebalance, parked requests and
timers live in this process only: when the coordinator moves, the members join again.
"""
