"""Share groups (KIP-932) at the leader of a partition: acquisition, acknowledgement, locks, sessions, dead letters.

`interface` is what the group coordinator knows of this room. The rules (`partition`, `acquiring`, `acknowledging`,
`sessions`) get the time as an argument and know neither sockets nor the broker; `led`, `leader`, `store`, `fetching`
and `dead_letters` carry them out.
"""
