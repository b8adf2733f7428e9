"""Values of the network thread: the subscription with the state of each assigned partition."""
