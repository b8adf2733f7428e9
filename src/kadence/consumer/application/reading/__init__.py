"""From fetched bytes to what a poll returns: records, columns, deserialised values, dead letters (A, C9).

Runs on the application thread. Positions follow what is returned.
"""
