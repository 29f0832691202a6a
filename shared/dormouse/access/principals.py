"""The canonical names of callers, as access rules name them, and patterns with ``*``.

A service that answers for any caller learns the caller from what AWS has verified, never from what
the caller writes:

- ``arn:aws:iam::123456789012:role/analyst``: callers with a role, in any session of it;
- ``arn:aws:iam::123456789012:user/eve``: a user; other callers of AWS by their ARN as it is;
- ``aws-id:AROAEXAMPLE``: the sender of a message, whom SQS names by the unique id alone;
- ``jwt:https://issuer.example#alice``: the issuer and the subject of a token;
- ``local``: everybody who uses a server on this machine.
"""

from __future__ import annotations

import re

from dormouse.errors import InvalidRequestError

LOCAL = "local"
"""Everybody who uses a server on this machine, which cannot distinguish its users."""
NOBODY = ""
"""A caller whom nothing identifies; no rule is about this one."""
MAX_LENGTH = 1024

_ASSUMED = re.compile(r"arn:([a-z-]+):sts::(\d{12}):assumed-role/([^/]+)/[^/]+")
_ROLE = re.compile(r"(arn:[a-z-]+:iam::\d{12}:role/)(?:.*/)?([^/]+)")
_PRINTABLE = re.compile(r"[^\x00-\x20\x7f]+")


def principal_of_arn(arn: str) -> str:
    """Return the principal of a caller whom AWS names by an ARN; `NOBODY` if it is none.

    Of a session it is the role, without the role's path: an ARN of a session has none, and the
    names of roles are unique in an account.
    """
    if not arn.startswith("arn:") or not _is_name(arn):
        return NOBODY
    if ":assumed-role/" not in arn:
        return _without_path(arn)
    assumed = _ASSUMED.fullmatch(arn)
    return "arn:{}:iam::{}:role/{}".format(*assumed.groups()) if assumed else NOBODY


def principal_of_token(issuer: str, subject: str) -> str:
    """Return the principal of a verified token; `NOBODY` if it lacks an issuer or a subject.

    No issuer contains ``#``, so that no two pairs have the same name.
    """
    if not issuer or not subject or "#" in issuer:
        return NOBODY
    principal = f"jwt:{issuer}#{subject}"
    return principal if _is_name(principal) else NOBODY


def is_token(principal: str) -> bool:
    """Return whether a principal is known by a token, and so not to IAM."""
    return principal.startswith("jwt:")


def principal_of_sender(sender_id: str) -> str:
    """Return the principal of the `SenderId` that SQS puts on a message; `NOBODY` if there is none.

    Of a session, ``AROAEXAMPLE:session``, it is the role.
    """
    unique_id = sender_id.partition(":")[0]
    return f"aws-id:{unique_id}" if unique_id.isalnum() and unique_id.isascii() else NOBODY


def checked_principals(text: str) -> str:
    """Return the canonical form of a principal, or of a pattern of principals, in a rule.

    Raises:
        InvalidRequestError: it can be none.
    """
    if not _is_name(text):
        raise InvalidRequestError(
            f"{text!r} names no principal",
            hint="it is an ARN, aws-id:…, jwt:issuer#subject or local, "
            f"of up to {MAX_LENGTH} printable characters; * stands for any characters",
        )
    if text.startswith("arn:") and ":assumed-role/" in text:
        raise InvalidRequestError(
            f"{text!r} names a session, and rules are about roles",
            hint="name the role: arn:aws:iam::<account>:role/<name>",
        )
    plain = _without_path(text)
    if plain != text and "*" in text:
        raise InvalidRequestError(
            f"{text!r} has the path of a role, which sessions do not tell",
            hint="leave the path out: arn:aws:iam::<account>:role/<name>",
        )
    return plain


def matches(pattern: str, text: str) -> bool:
    """Return whether a text is of a pattern, in which ``*`` stands for any characters, or none.

    The time is linear in the text: its parts are found one after the other.
    """
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *between, last = others
    start, end = len(first), len(text) - len(last)
    if start > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in between:
        found = text.find(part, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return True


def _without_path(arn: str) -> str:
    role = _ROLE.fullmatch(arn)
    return f"{role[1]}{role[2]}" if role else arn


def _is_name(text: str) -> bool:
    return len(text) <= MAX_LENGTH and _PRINTABLE.fullmatch(text) is not None
