"""One member of a classic group: JoinGroup and SyncGroup."""
