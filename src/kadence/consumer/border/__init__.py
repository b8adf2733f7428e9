"""The border: the only objects that both threads use (C1).

Application → network: imperative events. Network → application: facts. Both are plain frozen data with
ids (`messages`); per partition a cell with one writer for each field (`cells`); fetched bytes (`buffer`).
Nothing here knows a socket, a manager, or the public API.
"""
