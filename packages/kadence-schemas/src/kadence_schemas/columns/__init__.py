"""Bytes of keys and values → typed Arrow columns, by the schemas that their records name.

Used by the Spark source's workers and by `Consumer.poll_arrow`. It depends on Arrow and schemas, and not on the source
of the bytes.
"""
