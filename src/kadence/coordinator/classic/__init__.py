"""Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-62, KIP-345, KIP-394).

What is stored of a group is its last assigned generation (`storing`). The phases of a rebalance in between, parked
requests and timers are the process's own: when the coordinator moves, the members join again.
"""
