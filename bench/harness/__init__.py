"""What the rows of `make bench` share: plans, figures, peers, child processes, the cluster and its topics, tables."""
