"""The demo: a year of flights on their way through an instance, watched and checked.

Run as ``dormouse local run -- python -m tools.demo``. ``flights`` has the data,
``acts`` are what happens, in order, and ``__main__`` plays them.
"""
