"""Plays the demo against the instance that the environment names; exits 0 if all went well."""

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from dormouse.client.instance import Instance
from dormouse.errors import DormouseError
from tools.demo import acts, flights


def play(stage: acts.Scene, folder: Path) -> None:
    """Play all acts. Raises DormouseError: something did not go as it must."""
    stage.title("336,776 flights that left New York City in 2013")
    original = flights.load()
    rows = flights.as_stored(original)
    months = flights.write_months(original, folder)
    broken = flights.write_broken(months[0])
    stage.say("twelve monthly Parquet files, and one that ends in the middle")
    handle = acts.open_table(stage)

    stage.title("Dropped into the ingest bucket")
    acts.drop_files(stage, handle, months, broken)
    acts.show_refused(stage, handle, broken)

    stage.title("Before: one partition, its shards as they came")
    before = acts.show_table(stage, handle)

    stage.title("Online: partitions are split, shards are compacted")
    acts.let_it_work(stage, handle)
    after = acts.show_table(stage, handle)
    acts.compare(stage, before, after)

    stage.title("Looked up")
    acts.look_up(stage, handle, rows)

    stage.title("Checked against the original")
    acts.check(stage, handle, rows)

    stage.title("Removed for good")
    acts.remove(stage, handle, rows)
    acts.show_garbage(stage, handle)


def main() -> int:
    """Return the exit code. An argument, if there is one, is where a page about the table goes."""
    console = Console(highlight=False)
    began = time.perf_counter()
    try:
        instance = Instance.connect()
        with tempfile.TemporaryDirectory(prefix="dormouse-demo-") as folder:
            play(acts.Scene(console, instance, acts.files_queue()), Path(folder))
        for page in sys.argv[1:2]:
            acts.write_report(instance, Path(page))
            console.print(f"  {page} shows all of it in a browser", markup=False)
    except DormouseError as error:
        console.print(f"\nThe demo failed: {error.explanation}", style="bold red", markup=False)
        return 1
    console.print(f"\nDone in {time.perf_counter() - began:.0f} s.", style="bold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
