"""Makes the package of Spark jobs that `sam build` makes, for functions that are to bring it.

Called by `stack`. It has the library, but none of what that needs: runs take it from this
environment.
"""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dormouse
from dormouse_cli.local.errors import StartError
from dormouse_cli.local.plan import Deployment

VARIABLE = "DORMOUSE_SPARK_PACKAGE"
"""The environment variable with the folder of the package; on AWS that is in a layer."""


def with_package(deployment: Deployment, project: Path, folder: Path) -> Deployment:
    """Return the deployment with a package, made in `folder`, for each function that names one.

    Raises:
        StartError: the package cannot be made from the project.
    """
    if not any(VARIABLE in function.environment for function in deployment.functions):
        return deployment
    _make(project, folder)
    functions = tuple(
        replace(function, environment={**function.environment, VARIABLE: str(folder)})
        if VARIABLE in function.environment
        else function
        for function in deployment.functions
    )
    return replace(deployment, functions=functions)


def _make(project: Path, folder: Path) -> None:
    shared, environment = project / "shared", folder.with_name(f"{folder.name}-environment")
    for made in (folder, environment):
        shutil.rmtree(made, ignore_errors=True)
    library = Path(dormouse.__file__).parent
    shutil.copytree(library, environment / library.name)
    ended = subprocess.run(
        [sys.executable, shared / "pack_spark.py", environment, project / "spark", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(environment)
    if ended.returncode:
        raise StartError(f"the package of Spark jobs cannot be made: {ended.stderr.strip()}")
