"""batch_files: objects dropped into the ingest bucket become ingest jobs."""

from functools import partial

from dormouse.aws.handling import handle_notifications, loaded
from dormouse.features.batch_files import batch_files

STAGE = loaded("batch_files")
handle = partial(handle_notifications, queue=STAGE.queue, stage=batch_files)
