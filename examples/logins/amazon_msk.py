"""Log in to Amazon MSK with IAM, in place of Java's IAMClientCallbackHandler.

The settings of a client; brokers listen for IAM at port 9098 (from outside AWS 9198):

    security.protocol=SASL_SSL
    sasl.mechanism=OAUTHBEARER
    sasl.oauthbearer.token.provider=amazon_msk:token

Needs ``pip install aws-msk-iam-sasl-signer-python``, and this file where Python finds modules: beside your program, or
in a directory of PYTHONPATH. The credentials are AWS's usual ones: of the environment, of a profile, of the role of a
machine, a pod or a job. Set AWS_REGION or AWS_DEFAULT_REGION, unless the service that runs your program does.
"""

from __future__ import annotations

import os

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from kadence import Token


def token() -> Token:
    """A token for 15 minutes: a request to AWS, signed with the credentials."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise RuntimeError("set AWS_REGION to the region of the cluster, such as eu-central-1")
    value, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    return Token(value, expires_at=expires_ms / 1000)
