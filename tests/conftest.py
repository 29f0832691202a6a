"""For all tests: the same examples in every run, and no deadlines.

A run tells of the change it is made for, on a slow machine too. `--hypothesis-profile=explore`
chooses other examples each time, and more; so does `make fuzz`.
"""

from hypothesis import settings

settings.register_profile("dormouse", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("dormouse")
