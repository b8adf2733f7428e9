"""The rows of `make bench`, one file for each thing that a user does. Each file has a ``ROW`` (`harness.plan.Row`)."""
