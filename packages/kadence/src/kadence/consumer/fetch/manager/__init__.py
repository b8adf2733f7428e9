"""The fetch manager: decides which partitions to fetch, from which broker and when. Network thread, sans-IO."""
