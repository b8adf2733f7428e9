"""Where reading starts, and whether a position still belongs to the log that it was read from (KIP-320)."""
