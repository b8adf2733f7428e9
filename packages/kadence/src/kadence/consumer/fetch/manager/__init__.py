"""The fetch manager: what is fetched, from which broker and when. Network thread, sans-IO."""
