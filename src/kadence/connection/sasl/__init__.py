"""SASL mechanisms as values: challenges in, answers out; one file for each mechanism.

An `Exchange` is one authentication of one connection; a `Login` begins them and knows whom it logs in. What a
mechanism may not know is time, sockets and files: tokens that have to be fetched come from a login of `kadence.net`.
"""
