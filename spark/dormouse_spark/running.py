"""Run tasks on a Spark context so that their errors keep their meaning.

What trying again may cure is left to Spark, which runs a task up to four times; every other error
is a result, for the driver to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import RDD

from dormouse.errors import DormouseError, OutcomeUnknownError, UnavailableError

_Result = TypeVar("_Result")
_SHOWN_CHARACTERS = 1000


def run_task(make: Callable[[], Iterable[_Result]]) -> Iterator[_Result | DormouseError]:
    """Return what `make` gives, and the error that ends it if trying again would not help.

    What nobody expected is told by its type and place alone: a library may quote a value of a row,
    and Spark puts the message into logs, and into the reason why it gave the job up.
    """
    try:
        yield from make()
    except (UnavailableError, OutcomeUnknownError):
        raise
    except DormouseError as error:
        yield error
    except Exception as error:
        told = RuntimeError(f"a task ended with {type(error).__name__}")
        raise told.with_traceback(error.__traceback__) from None


def collect_results(tasks: RDD[_Result | DormouseError]) -> list[_Result]:
    """Run all tasks and give their results.

    Raises:
        DormouseError: the first of those that tasks ended with.
        UnavailableError: Spark gave a task up.
    """
    try:
        found = tasks.collect()
    except Py4JJavaError as error:
        text = str(error.java_exception)[:_SHOWN_CHARACTERS]
        raise UnavailableError(f"Spark gave the job up: {text}") from error
    results = []
    for each in found:
        if isinstance(each, DormouseError):
            raise each
        results.append(each)
    return results
