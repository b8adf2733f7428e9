"""What `bench/parity.py` compares: topics, checks, and the process that runs both sources."""
