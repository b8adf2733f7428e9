"""Arrow columns out of the bytes of records, whatever their schema comes from; opens no connection.

`read`, the schemas of a registry and the Spark source stand on it, and none of them knows the others.
"""
