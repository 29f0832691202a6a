"""What the template says of buckets, queues and tables must be true of those that are created."""

from dormouse_cli.local.stack import LocalStack

ARN = "arn:aws:sqs:eu-west-2:123456789012"


def test_buckets_have_their_versioning_lifecycle_and_notifications(stack: LocalStack) -> None:
    s3 = stack.client("s3")
    assert s3.get_bucket_versioning(Bucket="ingest-test")["Status"] == "Enabled"
    announced = s3.get_bucket_notification_configuration(Bucket="ingest-test")
    (filtered,) = announced["QueueConfigurations"]
    assert filtered["QueueArn"] == f"{ARN}:local-WorkQueue"
    rules = s3.get_bucket_lifecycle_configuration(Bucket="ingest-test")["Rules"]
    assert [(rule["ID"], rule["Expiration"]) for rule in rules] == [("old", {"Days": 7})]


def test_a_notification_and_a_lifecycle_rule_need_no_filter(stack: LocalStack) -> None:
    s3 = stack.client("s3")
    announced = s3.get_bucket_notification_configuration(Bucket="local-sparebucket")
    assert "Filter" not in announced["QueueConfigurations"][0]
    rules = s3.get_bucket_lifecycle_configuration(Bucket="local-sparebucket")["Rules"]
    assert rules[0]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 2}
    assert rules[1]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


def test_queues_have_their_timeouts_and_dead_letter_queue(stack: LocalStack) -> None:
    sqs = stack.client("sqs")
    url = sqs.get_queue_url(QueueName="local-WorkQueue")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "900"
    assert f'"{ARN}:local-DeadQueue"' in attributes["RedrivePolicy"]


def test_tables_have_their_keys_indexes_and_time_to_live(stack: LocalStack) -> None:
    dynamodb = stack.client("dynamodb")
    table = dynamodb.describe_table(TableName="local-WorkTable")["Table"]
    assert table["KeySchema"] == [{"AttributeName": "pk", "KeyType": "HASH"}]
    assert [index["IndexName"] for index in table["GlobalSecondaryIndexes"]] == ["by-index"]
    ttl = dynamodb.describe_time_to_live(TableName="local-WorkTable")["TimeToLiveDescription"]
    assert ttl["AttributeName"] == "expires"
