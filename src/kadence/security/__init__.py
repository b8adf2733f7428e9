"""Reads and checks the ``sasl.*`` and ``ssl.*`` keys: trusted authorities and credentials. Opens no connection.

It reads a configuration as `settings.Settings`, so it does not know `kadence.config`, which checks its keys here.
"""

from kadence.security.credentials import ClientCredentials, Credentials, Kerberos, Secret, Token

__all__ = ["ClientCredentials", "Credentials", "Kerberos", "Secret", "Token"]
