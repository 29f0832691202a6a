"""The context that Lambda passes to a function, as far as functions use it."""

from __future__ import annotations

from dataclasses import dataclass

from aws_lambda_powertools.utilities.typing import LambdaContext


@dataclass
class Context(LambdaContext):
    """An invocation with so much time left."""

    left_ms: int = 300_000

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # it is no method there
        return self.left_ms
