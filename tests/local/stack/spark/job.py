"""A job of Spark for the tests: says what it was given, and ends as its argument says.

It starts no Spark of its own: what is tested is how it is run.
"""

import json
import os
import sys
import time
from pathlib import Path

said, ending = Path(sys.argv[1]), sys.argv[2]
environment = {name: os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "TMPDIR")}
said.write_text(json.dumps({"arguments": sys.argv[1:], "pid": os.getpid(), **environment}))
if ending == "hang":
    time.sleep(1000)
sys.exit(int(ending))
