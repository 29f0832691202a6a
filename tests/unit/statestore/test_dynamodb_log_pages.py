"""What a failed request to DynamoDB means: nothing done, or nobody knows."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError
from botocore.stub import Stubber

from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.log.pages import LOWEST_ID, Head, Manifest
from tests.contract.state_pages import DynamoPages
from tests.support.retries import WITHOUT_PAUSES

PAGE_1 = {"DeleteRequest": {"Key": {"t": {"S": "t#0#0"}, "g": {"S": f"{1:012d}"}}}}


@pytest.fixture
def stubbed() -> Iterator[tuple[DynamoPages, Stubber]]:
    client = boto3.client(
        "dynamodb",
        region_name="eu-west-2",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )
    with Stubber(client) as stubber:
        yield DynamoPages(client, "state", WITHOUT_PAUSES), stubber


@pytest.mark.parametrize(
    ("code", "status", "repeats", "expected"),
    [
        ("ProvisionedThroughputExceededException", 400, 0, UnavailableError),
        ("TransactionConflictException", 400, 0, UnavailableError),
        ("ResourceNotFoundException", 400, 0, UnavailableError),
        ("ProvisionedThroughputExceededException", 400, 2, OutcomeUnknownError),
        ("InternalServerError", 500, 0, OutcomeUnknownError),
        ("ServiceUnavailable", 503, 3, OutcomeUnknownError),
    ],
)
def test_only_a_refusal_of_a_request_sent_once_means_nothing_was_done(
    stubbed: tuple[DynamoPages, Stubber],
    code: str,
    status: int,
    repeats: int,
    expected: type[Exception],
) -> None:
    pages, stubber = stubbed
    stubber.add_client_error(
        "update_item",
        service_error_code=code,
        http_status_code=status,
        response_meta={"RetryAttempts": repeats},
    )
    with pytest.raises(expected, match=code):
        pages.append("t", 0, "00" * 16)


def test_a_transaction_that_met_another_did_nothing_and_is_no_failed_condition(
    stubbed: tuple[DynamoPages, Stubber],
) -> None:
    pages, stubber = stubbed
    stubber.add_client_error(
        "transact_write_items",
        service_error_code="TransactionCanceledException",
        http_status_code=400,
        modeled_fields={"CancellationReasons": [{"Code": "TransactionConflict"}, {"Code": "None"}]},
    )
    with pytest.raises(UnavailableError):
        pages.open_page("t", 1, LOWEST_ID)


def test_a_write_without_an_answer_may_have_landed_a_read_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, stubbed: tuple[DynamoPages, Stubber]
) -> None:
    pages, _ = stubbed

    def times_out(*_: object, **__: object) -> None:
        raise ConnectTimeoutError(endpoint_url="here")

    for call in ("update_item", "transact_write_items", "get_item"):
        monkeypatch.setattr(pages._client, call, times_out)
    for write in (
        lambda: pages.append("t", 0, "00" * 16),
        lambda: pages.open_page("t", 0, LOWEST_ID),
        lambda: pages.set_manifest("t", Manifest(1)),
        lambda: pages.raise_low_water_mark("t", Head(0, Manifest(1))),
    ):
        with pytest.raises(OutcomeUnknownError):
            write()
    with pytest.raises(UnavailableError):
        pages.page("t", 0)


def test_pages_that_are_never_deleted_fail_after_as_many_attempts_as_the_policy_allows(
    stubbed: tuple[DynamoPages, Stubber],
) -> None:
    pages, stubber = stubbed
    for _ in range(WITHOUT_PAUSES.attempts):
        stubber.add_response("batch_write_item", {"UnprocessedItems": {"state": [PAGE_1]}})
    with pytest.raises(UnavailableError, match="12 times in a row"):
        pages.delete_pages("t", 1, 2)
    stubber.assert_no_pending_responses()


def test_a_deletion_without_an_answer_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, stubbed: tuple[DynamoPages, Stubber]
) -> None:
    pages, _ = stubbed

    def times_out(*_: object, **__: object) -> None:
        raise ConnectTimeoutError(endpoint_url="here")

    monkeypatch.setattr(pages._client, "batch_write_item", times_out)
    with pytest.raises(UnavailableError):
        pages.delete_pages("t", 0, 1)


def test_a_page_that_a_batch_left_undeleted_is_deleted_by_the_next_request(
    stubbed: tuple[DynamoPages, Stubber],
) -> None:
    pages, stubber = stubbed
    left = PAGE_1
    stubber.add_response("batch_write_item", {"UnprocessedItems": {"state": [left]}})
    stubber.add_response(
        "batch_write_item", {"UnprocessedItems": {}}, {"RequestItems": {"state": [left]}}
    )
    pages.delete_pages("t", 0, 2)
    stubber.assert_no_pending_responses()
