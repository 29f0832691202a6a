"""Run by spark-submit with the ids of a job; see `dormouse_spark.entry`."""

import sys

from dormouse_spark.entry import main, run_export_rows

if __name__ == "__main__":
    sys.exit(main(run_export_rows))
