"""What a failed request is, by what helps against it: in one place, for all services."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)

from dormouse.aws.clients import (
    ConditionFailedError,
    Failure,
    kind_of,
    kind_of_code,
    reading,
    writing,
)
from dormouse.errors import (
    ContendedError,
    DormouseError,
    NoSuchInstanceError,
    OutcomeUnknownError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.jobs import permanent_failure
from tests.support.retries import WITHOUT_PAUSES

CONDITION, CONTENTION, TRANSIENT, PERMANENT = Failure
KINDS: dict[Failure, tuple[tuple[str, int], ...]] = {
    CONDITION: (("ConditionalCheckFailedException", 400), ("PreconditionFailed", 412)),
    CONTENTION: (
        *(("TransactionConflictException", 400), ("ConditionalRequestConflict", 409)),
        *(("OperationAborted", 409), ("TransactionCanceledException", 400)),
    ),
    TRANSIENT: (
        *(("ThrottlingException", 400), ("ProvisionedThroughputExceededException", 400)),
        *(("RequestLimitExceeded", 400), ("SlowDown", 503), ("InternalError", 500)),
        *(("RequestTimeout", 400), ("TooManyRequestsException", 429), ("Unheard", 502)),
        *(("KMS.ThrottlingException", 400), ("BadDigest", 400), ("InternalServerError", 500)),
        *(("ServiceQuotaExceededException", 402), ("Unheard", 0), ("503", 503), ("408", 408)),
    ),
    PERMANENT: (
        *(("AccessDenied", 403), ("AccessDeniedException", 400), ("403", 403)),
        *(("ValidationException", 400), ("ResourceNotFoundException", 400), ("NoSuchBucket", 404)),
        *(("UnknownOperationException", 400), ("NotImplemented", 501), ("Unheard", 501)),
        *(("PermanentRedirect", 301), ("InvalidAccessKeyId", 403), ("ExpiredToken", 400)),
        *(("UnrecognizedClientException", 400), ("AccessDenied", 0), ("Unheard", 400)),
    ),
}


def failed(code: str, status: int, *reasons: str, retries: int = 0) -> ClientError:
    answer = {
        "Error": {"Code": code, "Message": "of this code"},
        "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": retries},
        "CancellationReasons": [{"Code": reason} for reason in reasons],
    }
    return ClientError(answer, "PutItem")  # type: ignore[arg-type]  # as much as is read of it


def told(error: Exception, *, is_write: bool) -> type[Exception]:
    """Return the class of the error as which a failure is raised."""
    sending = writing("DynamoDB") if is_write else reading("DynamoDB")
    with pytest.raises((DormouseError, ConditionFailedError)) as raised, sending:
        raise error
    assert raised.value.__cause__ is error
    return raised.type


def test_every_code_of_a_service_is_of_one_kind() -> None:
    for kind, codes in KINDS.items():
        for code, status in codes:
            assert kind_of_code(code, status) is kind, code


def test_a_transaction_is_judged_by_the_reasons_for_which_it_was_cancelled() -> None:
    for reasons, kind in {
        ("None", "ConditionalCheckFailed"): CONDITION,
        ("TransactionConflict", "ConditionalCheckFailed"): CONDITION,
        ("None", "TransactionConflict"): CONTENTION,
        ("ThrottlingError", "None"): TRANSIENT,
        ("ProvisionedThroughputExceeded", "None"): TRANSIENT,
        ("TransactionConflict", "ValidationError"): PERMANENT,
        ("None", "AccessDenied"): PERMANENT,
        ("None", "None"): CONTENTION,
    }.items():
        error = failed("TransactionCanceledException", 400, *reasons)
        assert kind_of(error) is kind, reasons


def test_what_was_never_sent_is_refused_and_what_was_not_answered_is_in_doubt() -> None:
    never: tuple[BotoCoreError, ...] = (NoCredentialsError(), ParamValidationError(report="no"))
    for error in never:
        assert told(error, is_write=True) is told(error, is_write=False) is ServiceRefusedError
    unanswered = (EndpointConnectionError, ConnectTimeoutError, ReadTimeoutError)
    for kind in unanswered:
        error = kind(endpoint_url="http://here")
        assert told(error, is_write=True) is OutcomeUnknownError
        assert told(error, is_write=False) is UnavailableError


def test_a_failure_is_told_as_what_it_is_and_a_retried_write_stays_in_doubt() -> None:
    for code, status, read, write in (
        ("AccessDeniedException", 400, ServiceRefusedError, ServiceRefusedError),
        ("ResourceNotFoundException", 400, NoSuchInstanceError, NoSuchInstanceError),
        ("NotImplemented", 501, ServiceRefusedError, ServiceRefusedError),
        ("ThrottlingException", 400, UnavailableError, UnavailableError),
        ("TransactionConflictException", 400, ContendedError, ContendedError),
        ("InternalServerError", 500, UnavailableError, OutcomeUnknownError),
        ("ConditionalCheckFailedException", 400, ServiceRefusedError, ConditionFailedError),
    ):
        assert told(failed(code, status), is_write=False) is read, code
        assert told(failed(code, status), is_write=True) is write, code
    for code in ("AccessDeniedException", "ThrottlingException"):
        assert told(failed(code, 400, retries=1), is_write=True) is OutcomeUnknownError


def test_a_refusal_for_good_is_not_repeated_and_is_the_reason_of_its_dead_letter() -> None:
    calls: list[int] = []

    def request() -> None:
        calls.append(1)
        with reading("S3"):
            raise failed("AccessDenied", 403)

    with pytest.raises(ServiceRefusedError, match="AccessDenied") as refused:
        WITHOUT_PAUSES.retry(request)
    assert len(calls) == 1
    assert "permission" in refused.value.hint
    assert "AccessDenied" in permanent_failure(refused.value)
    assert permanent_failure(UnavailableError("busy")) == ""


@pytest.mark.parametrize("code", ["ExpiredToken", "UnrecognizedClientException"])
def test_credentials_that_are_none_any_more_are_said_to_be_those_of_the_environment(
    code: str,
) -> None:
    with pytest.raises(ServiceRefusedError) as refused, reading("DynamoDB"):
        raise failed(code, 400)
    assert "renew the credentials of the environment" in refused.value.hint
