"""Hides pandas from the measured functions, whose layers do not have it.

pyarrow imports pandas at its first value wherever it is installed, which takes 35 MB of memory.
"""

raise ModuleNotFoundError("the layers of the functions have no pandas", name="pandas")
