"""Run tasks on a Spark context so that their errors keep their meaning.

Errors that a retry may resolve are left to Spark, which runs a task up to four times. All other
errors are returned as results, and raised by the driver.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TypeVar
from zipimport import zipimporter

from py4j.protocol import Py4JJavaError
from pyspark import RDD

from dormouse.errors import DormouseError, OutcomeUnknownError, UnavailableError

_Result = TypeVar("_Result")
_SHOWN_CHARACTERS = 1000


def run_task(make: Callable[[], Iterable[_Result]]) -> Iterator[_Result | DormouseError]:
    """Yield what `make` yields, and the error that ends it if a retry would not help.

    An unexpected error is reported by its type and place alone: a library may quote a value of a
    row, and Spark writes the message to logs, and to the reason for which the job failed.
    """
    _keep_modules()
    try:
        yield from make()
    except (UnavailableError, OutcomeUnknownError):
        raise
    except DormouseError as error:
        yield error
    except Exception as error:
        reported = RuntimeError(f"a task ended with {type(error).__name__}")
        raise reported.with_traceback(error.__traceback__) from None
    finally:
        forget_archives()


@cache
def _keep_modules() -> None:
    """Let the garbage collector pass over what was imported before the first task of a process.

    PySpark collects garbage after each task, and goes through all modules for that: 0.1 s a task.
    """
    gc.freeze()


def forget_archives() -> None:
    """Forget the finders of modules in archives, which the next import makes again.

    PySpark invalidates the caches of all finders at the start of each task, and Python 3.11 then
    reads the directory of PySpark's archive again, once for each package in it: 0.2 s a task. New
    finders use the directory that was read first.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def collect_results(tasks: RDD[_Result | DormouseError]) -> list[_Result]:
    """Run all tasks and return their results.

    Raises:
        DormouseError: the first error that a task returned.
        UnavailableError: Spark stopped the job, because a task failed too often.
    """
    try:
        answers = tasks.collect()
    except Py4JJavaError as error:
        text = str(error.java_exception)[:_SHOWN_CHARACTERS]
        raise UnavailableError(f"Spark stopped the job: {text}") from error
    results = []
    for each in answers:
        if isinstance(each, DormouseError):
            raise each
        results.append(each)
    return results
