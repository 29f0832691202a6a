"""The names and ARNs that resources of the local stack have; used by `template`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from dormouse_cli.local.intrinsics import Document
from dormouse_cli.local.plan import Json

STACK = "local"

_NAME_PROPERTIES = {
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::EMRServerless::Application": "Name",
    "AWS::Events::Rule": "Name",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Role": "RoleName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Lambda::LayerVersion": "LayerName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SNS::Topic": "TopicName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::Scheduler::Schedule": "Name",
}
_ARNS = {
    "AWS::CloudWatch::Alarm": "arn:{partition}:cloudwatch:{region}:{account}:alarm:{name}",
    "AWS::DynamoDB::Table": "arn:{partition}:dynamodb:{region}:{account}:table/{name}",
    "AWS::EMRServerless::Application": (
        "arn:{partition}:emr-serverless:{region}:{account}:/applications/{name}"
    ),
    "AWS::Events::Rule": "arn:{partition}:events:{region}:{account}:rule/{name}",
    "AWS::IAM::ManagedPolicy": "arn:{partition}:iam::{account}:policy/{name}",
    "AWS::IAM::Role": "arn:{partition}:iam::{account}:role/{name}",
    "AWS::Lambda::Function": "arn:{partition}:lambda:{region}:{account}:function:{name}",
    "AWS::Lambda::LayerVersion": "arn:{partition}:lambda:{region}:{account}:layer:{name}:1",
    "AWS::Logs::LogGroup": "arn:{partition}:logs:{region}:{account}:log-group:{name}:*",
    "AWS::S3::Bucket": "arn:{partition}:s3:::{name}",
    "AWS::SNS::Topic": "arn:{partition}:sns:{region}:{account}:{name}",
    "AWS::SQS::Queue": "arn:{partition}:sqs:{region}:{account}:{name}",
    "AWS::Scheduler::Schedule": (
        "arn:{partition}:scheduler:{region}:{account}:schedule/default/{name}"
    ),
}
SENDER_ID = "AIDAIT2UOQQY3AUEKVGXU"
"""The sender of all messages in queues of moto, whichever role has sent them."""
_REF_IS_ARN = frozenset({"AWS::IAM::ManagedPolicy", "AWS::Lambda::LayerVersion", "AWS::SNS::Topic"})
_NAME_ATTRIBUTES = frozenset(
    {
        ("AWS::SQS::Queue", "QueueName"),
        ("AWS::SNS::Topic", "TopicName"),
        ("AWS::EMRServerless::Application", "ApplicationId"),
    }
)


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """Answers `Ref` and `Fn::GetAtt` of resources."""

    resources: Mapping[str, Document]
    pseudo: Mapping[str, str]
    endpoint_url: str
    text: Callable[[Json, str], str]

    def name(self, logical_id: str) -> str:
        """The name in the template, or one made of the stack's name and the logical id."""
        resource = self.resources[logical_id]
        properties = cast(Document, resource.get("Properties", {}))
        key = _NAME_PROPERTIES.get(cast(str, resource["Type"]))
        if key is not None and properties.get(key) is not None:
            return self.text(properties[key], f"{logical_id}.{key}")
        made = f"{STACK}-{logical_id}"
        return made.lower() if resource["Type"] == "AWS::S3::Bucket" else made

    def arn(self, logical_id: str) -> str | None:
        """The ARN, or nothing for a type whose ARN is not known here."""
        pattern = _ARNS.get(cast(str, self.resources[logical_id]["Type"]))
        if pattern is None:
            return None
        return pattern.format(
            partition=self.pseudo["AWS::Partition"],
            region=self.pseudo["AWS::Region"],
            account=self.pseudo["AWS::AccountId"],
            name=self.name(logical_id),
        )

    def ref(self, logical_id: str) -> str | None:
        """What `Ref` gives, or nothing if there is no such resource."""
        if logical_id not in self.resources:
            return None
        kind = self.resources[logical_id]["Type"]
        if kind == "AWS::SQS::Queue":
            return f"{self.endpoint_url}/{self.pseudo['AWS::AccountId']}/{self.name(logical_id)}"
        return self.arn(logical_id) if kind in _REF_IS_ARN else self.name(logical_id)

    def attribute(self, logical_id: str, attribute: str) -> str | None:
        """What `Fn::GetAtt` gives, or nothing for what is not known here."""
        if logical_id not in self.resources:
            return None
        if attribute == "Arn":
            return self.arn(logical_id)
        kind = cast(str, self.resources[logical_id]["Type"])
        if (kind, attribute) == ("AWS::IAM::Role", "RoleId"):
            return SENDER_ID
        return self.name(logical_id) if (kind, attribute) in _NAME_ATTRIBUTES else None
