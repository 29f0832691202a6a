"""Hides numpy from the measured functions, whose layers do not have it.

pyarrow imports numpy wherever it is installed, which takes some 18 MB of memory.
"""

raise ModuleNotFoundError("the layers of the functions have no numpy", name="numpy")
