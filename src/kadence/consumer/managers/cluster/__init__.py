"""What the cluster looks like: metadata and the epochs of its leaders."""
