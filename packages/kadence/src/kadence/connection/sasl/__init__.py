"""SASL mechanisms as values: challenges in, answers out; one file for each mechanism.

An `Exchange` is one authentication of one connection; a `Login` begins them and has the credentials. A mechanism
knows no time, sockets and files: tokens that have to be fetched come from a login of `kadence.net`.
"""
