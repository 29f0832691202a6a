"""A function that starts a process when it is loaded, and then hangs over every event."""

import os
import subprocess
import time

CHILD = subprocess.Popen(["sleep", "1000"])
print(f"loaded by {os.getpid()} which started {CHILD.pid}", flush=True)


def handle(event: object, context: object) -> None:
    """Never answer."""
    time.sleep(1000)
