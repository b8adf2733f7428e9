"""Share groups (KIP-932) at the leader of a partition: acquisition, acknowledgement, locks, sessions, dead letters.

`interface` is what the group coordinator knows of this room. Its state machines (`records`, `acquiring`,
`acknowledging`, `sessions`) get the time as an argument and import neither socket nor thread nor clock.
"""
