"""Bytes of keys and values → typed Arrow columns, by the schemas that their records name.

Used by the Spark source's workers and by `Consumer.poll_arrow`. It knows Arrow and schemas, and nothing of where the
bytes come from.
"""
