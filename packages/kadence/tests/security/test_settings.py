"""The keys of security: what belongs together, what contradicts itself, and that secrets stay hidden."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from kadence import Token
from kadence.config import AdminConfig, ConsumerConfig
from kadence.errors import ConfigError
from kadence.net import ConnectionConfig
from kadence.security import ClientCredentials, Kerberos, Secret, jaas
from kadence.security import login as of_keys
from kadence.security.oauth import is_loopback

SECRET = "hunter2"
PLAIN = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": SECRET,
}
OAUTH = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}
MODULES = "org.apache.kafka.common.security"
AWS = "software.amazon.msk.auth.iam"
GOOGLE = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
MSK = "sasl.mechanism=OAUTHBEARER and sasl.oauthbearer.token.provider=amazon_msk:token"


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    settings = {**base, **{name.replace("_", "."): value for name, value in changes.items()}}
    return {name: value for name, value in settings.items() if value is not None}


def with_jaas(mechanism: str, text: str, **changes: Any) -> dict[str, Any]:
    return changed(
        PLAIN,
        sasl_mechanism=mechanism,
        sasl_username=None,
        sasl_password=None,
        sasl_jaas_config=text,
        **changes,
    )


def read(settings: dict[str, Any]) -> Any:
    return of_keys.credentials(AdminConfig.parse(settings))


def test_user_and_password() -> None:
    found = read(PLAIN)
    assert (found.mechanism, found.username, found.password.reveal()) == ("PLAIN", "alice", SECRET)
    assert read({"bootstrap.servers": "localhost:9092"}) is None


@pytest.mark.parametrize(
    ("mechanism", "text"),
    [
        ("PLAIN", f'{MODULES}.plain.PlainLoginModule required username="alice" password="{SECRET}";'),
        ("PLAIN", f"{MODULES}.plain.PlainLoginModule REQUIRED\n username=alice\n password='{SECRET}' ; "),
        (
            "SCRAM-SHA-512",
            f'kafkashaded.{MODULES}.scram.ScramLoginModule required username="alice"password={SECRET};',
        ),
        (
            "SCRAM-SHA-256",
            f'ScramLoginModule optional /* who */ username = "alice" // me\n password="{SECRET}";',
        ),
    ],
)
def test_jaas_says_the_same(mechanism: str, text: str) -> None:
    found = read(with_jaas(mechanism, text))
    assert (found.mechanism, found.username, found.password.reveal()) == (mechanism, "alice", SECRET)


def test_settings_of_sparks_own_connector_carry_over() -> None:
    options = pytest.importorskip("kadence_spark.source.options")
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required username=alice password={SECRET};",
        "subscribe": "t",
    }
    parsed = options.parse(given, streaming=True)
    found = read(parsed.client)
    assert (found.mechanism, found.username, found.password.reveal()) == ("SCRAM-SHA-512", "alice", SECRET)
    assert SECRET not in repr(parsed)


def test_quoted_values_may_hold_anything() -> None:
    module = jaas.parse(r"""x.y.Z required a="=;\"\\ /*" b='it"s' c="" d=";" e="=" f="l\nm";""")
    assert module.name == "Z"
    assert module.options == {"a": '=;"\\ /*', "b": 'it"s', "c": "", "d": ";", "e": "=", "f": "l\nm"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "too short"),
        ("PlainLoginModule", "too short"),
        (f'PlainLoginModule username="a" password="{SECRET}";', "followed by one of required"),
        (f'PlainLoginModule required username="a" password="{SECRET}"', "ends with a semicolon"),
        (f'PlainLoginModule required username="a" password="{SECRET};', "a quote is not closed"),
        (f'PlainLoginModule required username "a" password="{SECRET}";', 'name="value"'),
        (f"PlainLoginModule required password={SECRET} username=;", 'name="value"'),
        (f"PlainLoginModule required password={SECRET}; PlainLoginModule required;", "only one login module"),
        (f'PlainLoginModule required username="a" passwort="{SECRET}";', "no option 'passwort'"),
        ('PlainLoginModule required username="a";', "needs username and password"),
        ("com.example.OurLoginModule required;", "'OurLoginModule' is not supported"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "is for sasl.mechanism=GSSAPI, not PLAIN"),
        (
            f'ScramLoginModule required username="a" password="{SECRET}";',
            "for sasl.mechanism=SCRAM-SHA-256 or SCRAM-SHA-512, not PLAIN",
        ),
    ],
)
def test_jaas_that_cannot_be_read(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        AdminConfig.parse(with_jaas("PLAIN", text))
    assert told in str(error.value)
    assert SECRET not in str(error.value)


def test_client_credentials_by_keys_and_by_jaas() -> None:
    tokens = read(changed(OAUTH, sasl_oauthbearer_scope="read")).tokens
    assert tokens == ClientCredentials(
        OAUTH["sasl.oauthbearer.token.endpoint.url"], "me", Secret(SECRET), "read", {}, False
    )
    text = (
        f"{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId=me "
        f'clientSecret="{SECRET}" scope=read extension_logicalCluster="c-1";'
    )
    by_jaas = changed(
        OAUTH,
        sasl_oauthbearer_client_credentials_client_id=None,
        sasl_oauthbearer_client_credentials_client_secret=None,
        sasl_jaas_config=text,
        sasl_login_callback_handler_class=f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_header_urlencode="true",
    )
    found = read(by_jaas)
    assert found.tokens == ClientCredentials(
        tokens.url, "me", Secret(SECRET), "read", {"logicalCluster": "c-1"}, True
    )
    assert found.username == "me"


def test_a_token_provider() -> None:
    def provider() -> Token:
        raise NotImplementedError

    settings = {name: value for name, value in OAUTH.items() if not name.startswith("sasl.oauthbearer")}
    config = ConsumerConfig.parse(settings, sasl_oauthbearer_token_provider=provider)
    found = of_keys.credentials(config)
    assert found is not None
    assert found.tokens is provider


def test_logins_of_java_are_told_once() -> None:
    """A job on Amazon MSK has three settings of Java's; one sentence says what takes their place."""
    settings = with_jaas(
        "AWS_MSK_IAM",
        f"{AWS}.IAMLoginModule required;",
        sasl_client_callback_handler_class=f"{AWS}.IAMClientCallbackHandler",
    )
    with pytest.raises(ConfigError, match=r"aws-msk-iam-auth .* logs in to Amazon MSK") as error:
        ConsumerConfig.parse(settings)
    assert str(error.value).count(MSK) == 1


TOKENS = {name: value for name, value in OAUTH.items() if not name.startswith("sasl.oauthbearer")}


def test_a_token_provider_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vault_of_ours.py").write_text(
        "class Vault:\n    def token():\n        return 1\n\nnumber = 1\n"
    )
    (tmp_path / "broken_vault.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(tmp_path)

    def read(name: str) -> Any:
        return of_keys.credentials(ConsumerConfig.parse(TOKENS | {"sasl.oauthbearer.token.provider": name}))

    assert read(" vault_of_ours:Vault.token ").tokens() == 1
    for name, told in {
        "vault_of_ours": "'vault_of_ours' is not a callable, or the text module:function such as",
        "vault_of_ours:": "is not a callable, or the text",
        "../vault:token": "is not a callable, or the text",
        "nowhere_at_all:token": "the module 'nowhere_at_all' cannot be imported here (ModuleNotFoundError: No module",
        "broken_vault:token": "the module 'broken_vault' cannot be imported here (ModuleNotFoundError: No module",
        "vault_of_ours:Vaul": "the module 'vault_of_ours' has no 'Vaul'; did you mean vault_of_ours:Vault?",
        "vault_of_ours:Vault.x": "the module 'vault_of_ours' has no 'Vault.x'",
        "vault_of_ours:number": "vault_of_ours:number is int, which cannot be called",
    }.items():
        with pytest.raises(ConfigError) as error:
            read(name)
        assert str(error.value).startswith("sasl.oauthbearer.token.provider: ")
        assert told in str(error.value)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (changed(PLAIN, sasl_mechanism=None), "needs sasl.mechanism: one of PLAIN"),
        (changed(PLAIN, sasl_mechanism="NTLM"), "'NTLM' is not one of PLAIN"),
        (changed(PLAIN, sasl_username=None), "needs sasl.username and sasl.password"),
        (changed(PLAIN, sasl_password=None), "needs sasl.username and sasl.password"),
        (changed(PLAIN, sasl_username="a\0b"), "NUL"),
        (changed(PLAIN, security_protocol="SSL"), "sasl.mechanism has no effect with security.protocol=SSL"),
        (changed(PLAIN, security_protocol=None), "has no effect with security.protocol=PLAINTEXT"),
        (
            changed(PLAIN, sasl_oauthbearer_scope="x"),
            "sasl.oauthbearer.scope is for sasl.mechanism=OAUTHBEARER",
        ),
        (changed(PLAIN, sasl_password=12), "sasl.password: the given value is not a string"),
        (
            changed(PLAIN, sasl_oauthbearer_token_provider=1),
            "1 is not a callable, or the text module:function",
        ),
        (
            changed(PLAIN, sasl_jaas_config=f"PlainLoginModule required username=a password={SECRET};"),
            "leave out sasl.username and sasl.password",
        ),
        (changed(OAUTH, sasl_username="me"), "are not for OAUTHBEARER"),
        (changed(OAUTH, sasl_oauthbearer_token_endpoint_url=None), "needs sasl.oauthbearer.token.provider"),
        (changed(OAUTH, sasl_oauthbearer_client_credentials_client_secret=None), "client.id and .secret"),
        (changed(OAUTH, sasl_oauthbearer_token_provider=print), "leave out the keys of an endpoint"),
        (
            changed(OAUTH, sasl_oauthbearer_token_endpoint_url="http://login.example.org/"),
            "begin with https://",
        ),
        (changed(OAUTH, sasl_oauthbearer_token_endpoint_url="login"), "is no URL"),
        (changed(OAUTH, sasl_oauthbearer_token_endpoint_url=f"https://a:{SECRET}@b/"), "is no URL"),
        (
            changed(OAUTH, sasl_jaas_config="OAuthBearerLoginModule required clientId=x;"),
            "as clientId; give it once",
        ),
        (changed(OAUTH, sasl_login_callback_handler_class="com.acme.Handler"), "token.provider instead"),
        (changed(OAUTH, sasl_login_callback_handler_class=GOOGLE), "token.provider=google_kafka:token"),
        (changed(OAUTH, sasl_login_callback_handler_class=f"{AWS}.IAMOAuthBearerLoginCallbackHandler"), MSK),
        (with_jaas("OAUTHBEARER", f"{AWS}.IAMLoginModule required;"), MSK),
        (
            with_jaas(
                "AWS_MSK_IAM",
                f"{AWS}.IAMLoginModule required;",
                sasl_client_callback_handler_class=f"{AWS}.IAMClientCallbackHandler",
            ),
            MSK,
        ),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        AdminConfig.parse(settings)
    assert told in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("settings", [PLAIN, OAUTH, changed(OAUTH, sasl_oauthbearer_scope="s")])
def test_secrets_show_in_no_repr(settings: dict[str, Any]) -> None:
    config = AdminConfig.parse(settings)
    assert SECRET not in repr(config)
    assert SECRET not in repr(ConnectionConfig.of(config))
    assert SECRET not in repr(of_keys.credentials(config))
    assert pickle.loads(pickle.dumps(config)) == config
    assert SECRET not in repr(Token(SECRET, 1.0))
    assert SECRET not in repr(jaas.parse(f"A required password={SECRET};"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "LocalHost"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "fe80::1%eth0", "localhost.example.org", "kafka"])
def test_another_machine(host: str) -> None:
    assert not is_loopback(host)


KERBEROS = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.mark.parametrize(
    ("settings", "kerberos"),
    [
        (KERBEROS, Kerberos("kafka")),
        (
            changed(KERBEROS, sasl_kerberos_keytab="/k", sasl_kerberos_principal="alice"),
            Kerberos("kafka", "alice", "/k"),
        ),
        (
            changed(
                KERBEROS,
                sasl_kerberos_service_name=None,
                sasl_jaas_config=f'{KRB5} useKeyTab=true storeKey=true keyTab="/k" principal="a@R" serviceName=kafka;',
            ),
            Kerberos("kafka", "a@R", "/k"),
        ),
        (
            changed(KERBEROS, sasl_jaas_config=f"{KRB5} useTicketCache=true ticketCache=/tmp/krb5cc_0;"),
            Kerberos("kafka", ticket_cache="/tmp/krb5cc_0"),
        ),
    ],
)
def test_kerberos_by_keys_and_by_jaas(settings: dict[str, Any], kerberos: Kerberos) -> None:
    assert read(settings).kerberos == kerberos


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (changed(KERBEROS, sasl_kerberos_service_name=None), "needs sasl.kerberos.service.name"),
        (changed(KERBEROS, sasl_username="a"), "are not for GSSAPI"),
        (changed(KERBEROS, sasl_jaas_config=f"{KRB5} keyTab=/k;"), "has keyTab, but not useKeyTab=true"),
        (changed(KERBEROS, sasl_jaas_config=f"{KRB5} useKeyTab=true;"), "useKeyTab=true, and no keyTab"),
        (changed(KERBEROS, sasl_jaas_config=f"{KRB5} useKeytab=true;"), "no option 'useKeytab' here"),
        (changed(KERBEROS, sasl_jaas_config=f"{KRB5} isInitiator=false;"), "leave out isInitiator"),
        (changed(KERBEROS, sasl_jaas_config=f"{KRB5} serviceName=other;"), "differs from serviceName"),
        (
            changed(PLAIN, sasl_kerberos_keytab="/k"),
            "sasl.kerberos.keytab is for sasl.mechanism=GSSAPI, not PLAIN",
        ),
    ],
)
def test_kerberos_that_contradicts_itself(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        AdminConfig.parse(settings)
    assert told in str(error.value)
