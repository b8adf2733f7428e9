"""One member of a KIP-848 group: ConsumerGroupHeartbeat."""
