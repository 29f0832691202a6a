"""What can go wrong in the local stack, in words for the person who started it."""

from dormouse.errors import DormouseError


class LocalStackError(DormouseError):
    """The local stack cannot do what was asked; the message says what to change."""


class TemplateError(LocalStackError):
    """The template holds something that the local stack does not understand, and where."""


class StartError(LocalStackError):
    """A process of the local stack did not come up."""
