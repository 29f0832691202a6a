"""AWS sessions that know nothing of the caller's own account; used by `stack` and `translation`.

A profile, a proxy or a setting in `~/.aws` must neither break the local stack nor lead it to a
real account.
"""

import os

import boto3
from botocore.config import Config
from botocore.session import Session

ACCESS_KEY_ID = SECRET_ACCESS_KEY = "local"
DEFAULT_REGION = "eu-west-2"


def aws_environment(endpoint_url: str, region: str) -> dict[str, str]:
    """The variables with which a process talks to the local stack, and to nothing else."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_DEFAULT_REGION": region,
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_REGION": region,
    }


def isolated_session(region: str) -> boto3.Session:
    """A session with the local stack's credentials, blind to the environment and to `~/.aws`."""
    nowhere = (None, None, os.devnull, None)
    core = Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": nowhere,
            "credentials_file": nowhere,
        }
    )
    core.set_config_variable("region", region)
    core.set_default_client_config(Config(proxies={}))
    core.set_credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY)
    return boto3.Session(botocore_session=core)
