"""Run by spark-submit with the ids of a job; see `dormouse_spark.entry`."""

import sys

from dormouse_spark.entry import main

if __name__ == "__main__":
    sys.exit(main("query"))
