"""`dormouse template`: what is deployed, as files to build and deploy without a checkout."""

from pathlib import Path
from typing import Annotated

import typer

from dormouse.errors import AlreadyExistsError, InvalidRequestError
from dormouse_cli.project_files import find_project, write_project
from dormouse_cli.terminal import note

NEXT = (
    "cd {folder} && sam build && sam deploy --parameter-overrides Instance=dev\n"
    "(sam is the command of the package aws-sam-cli; the build needs make)"
)


def template(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.", file_okay=False)
    ],
) -> None:
    """Write what is deployed to a folder: the template, the functions, the sources of the layers.

    `sam build` and `sam deploy` in that folder make an instance on AWS, as in a checkout of this
    release. For a later release, write to another folder and deploy with the same names.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise AlreadyExistsError(
            f"{folder} is not empty", hint="name a folder that is new: nothing is replaced"
        )
    project = find_project()
    if project is None:
        raise InvalidRequestError(
            "there is no template beside or above the installed package",
            hint="install Dormouse from its wheel, or run it in a checkout",
        )
    try:
        files = write_project(project, folder)
    except OSError as error:
        raise InvalidRequestError(f"{folder} cannot be written: {error.strerror}") from error
    note(f"{files} files were written to {folder}; next:\n{NEXT.format(folder=folder)}")
