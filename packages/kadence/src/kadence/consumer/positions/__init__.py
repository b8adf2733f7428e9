"""Metadata, starting offsets, and the validation of positions. Network thread, sans-IO."""
