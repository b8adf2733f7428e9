"""Where reading starts and whether a position still holds: metadata, offsets, validation. Network thread, sans-IO."""
