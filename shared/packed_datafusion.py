"""DataFusion, unpacked when it is first imported: ``datafusion.py`` of the layer of statements.

A function may have 250 MiB of code, and DuckDB and DataFusion together would take more. So what few
calls of such a function need, DataFusion, lies packed beside this module, at a third of its size.
To unpack it takes 0.8 seconds of a processor, once in the life of a function's environment.
"""

import importlib
import sys
import tempfile
import zipfile
from pathlib import Path

folder = tempfile.mkdtemp(prefix="datafusion-")
with zipfile.ZipFile(Path(__file__).with_suffix(".zip")) as packed:
    packed.extractall(folder)
sys.path.insert(0, folder)
del sys.modules[__name__]
importlib.invalidate_caches()
importlib.import_module(__name__)
