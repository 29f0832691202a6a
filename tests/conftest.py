"""For all tests: hypothesis without deadlines, for no test may fail because a machine is slow."""

from hypothesis import settings

settings.register_profile("dormouse", deadline=None, print_blob=True)
settings.load_profile("dormouse")
