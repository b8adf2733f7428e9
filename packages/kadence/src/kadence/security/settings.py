"""The settings of a client that this room reads. `kadence.config` defines the keys, and has them checked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kadence.security import Secret, Token

__all__ = ["Settings"]


class Settings(Protocol):
    """The keys of security, each under its name in snake_case; see docs/configuration.md."""

    @property
    def security_protocol(self) -> str: ...

    @property
    def sasl_mechanism(self) -> str | None: ...

    @property
    def sasl_username(self) -> str | None: ...

    @property
    def sasl_password(self) -> Secret | None: ...

    @property
    def sasl_jaas_config(self) -> Secret | None: ...

    @property
    def sasl_kerberos_service_name(self) -> str | None: ...

    @property
    def sasl_kerberos_principal(self) -> str | None: ...

    @property
    def sasl_kerberos_keytab(self) -> str | None: ...

    @property
    def sasl_login_callback_handler_class(self) -> str | None: ...

    @property
    def sasl_oauthbearer_token_provider(self) -> Callable[[], Token] | None: ...

    @property
    def sasl_oauthbearer_token_endpoint_url(self) -> str | None: ...

    @property
    def sasl_oauthbearer_client_credentials_client_id(self) -> str | None: ...

    @property
    def sasl_oauthbearer_client_credentials_client_secret(self) -> Secret | None: ...

    @property
    def sasl_oauthbearer_scope(self) -> str | None: ...

    @property
    def sasl_oauthbearer_header_urlencode(self) -> bool | None: ...

    @property
    def ssl_ca_location(self) -> str | None: ...

    @property
    def ssl_certificate_location(self) -> str | None: ...

    @property
    def ssl_key_location(self) -> str | None: ...

    @property
    def ssl_truststore_type(self) -> str | None: ...

    @property
    def ssl_truststore_location(self) -> str | None: ...

    @property
    def ssl_truststore_certificates(self) -> str | None: ...

    @property
    def ssl_keystore_type(self) -> str | None: ...

    @property
    def ssl_keystore_location(self) -> str | None: ...

    @property
    def ssl_keystore_key(self) -> Secret | None: ...

    @property
    def ssl_keystore_certificate_chain(self) -> str | None: ...
