"""Kafka's messages, one module per API; generated from schema/ except `registry` and `message`.

Imports nothing of kadence but `wire`. `registry` is the door for whole frames.
"""
