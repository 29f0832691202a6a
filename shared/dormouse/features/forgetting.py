"""forget_subjects: forget the keys by which values of some subjects are encrypted.

No object is touched, and none need be: without its key, a value is noise wherever it is. A crash
leaves some keys forgotten, and the redelivery forgets the rest. The answer rests on a read of every
key after the last write.
"""

from dormouse.encryption import subject_name
from dormouse.errors import InvalidRequestError
from dormouse.features.requests import RequestResult
from dormouse.key_codec import part_from_json
from dormouse.messages.requests import Counts, ForgetSubjects
from dormouse.ports import Services
from dormouse.tables.encryption import subject_of
from dormouse.tables.table import Table


def forget_subjects(services: Services, table: Table, request: ForgetSubjects) -> RequestResult:
    """Forget the keys of subjects; return how many there were.

    Raises:
        InvalidRequestError: the table has no keys of subjects, or one is no value of their column.
        ContendedError: their rows are being ingested all the time; retry the message.
    """
    column = subject_of(table.schema)
    if not request.subjects:
        raise InvalidRequestError("the request names no subject", hint="name one or more")
    names = {
        subject_name(table.id, part_from_json(each, column, f"subjects[{number}]"))
        for number, each in enumerate(request.subjects)
    }
    return RequestResult(counts=Counts(keys=services.keys.subjects.forget(table.id, names)))
