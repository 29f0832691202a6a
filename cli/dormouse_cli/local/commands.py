"""Run an instance on this machine: an embedded AWS, and the template's functions.

The command line's main module adds `app` under the name `local`. What a program may read goes to
standard output, what a person reads to standard error.
"""

import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dormouse.console import console_uri
from dormouse.errors import NotFoundError, needs_extra
from dormouse.settings import is_folder
from dormouse_cli.errors import Commands
from dormouse_cli.local import detached
from dormouse_cli.local.plan import LocalStackError
from dormouse_cli.local.signals import interruptible, run_command
from dormouse_cli.project_files import TEMPLATE, find_project
from dormouse_cli.terminal import note

if TYPE_CHECKING:
    from dormouse_cli.local.stack import LocalStack

app = typer.Typer(
    cls=Commands,
    help=(__doc__ or "").partition("\n\n")[0],
    no_args_is_help=True,
    add_completion=False,
)

LOCAL_PARAMETERS = {"Instance": "local", "BatchWindowSeconds": "1"}
"""What differs from the template's defaults, unless the caller says otherwise."""

_FATE = ", and its data is gone then"
_AWS_ENDED = 0
"""Among the numbers of signals, that the process of the embedded AWS has ended."""

TemplateOption = Annotated[
    Path | None,
    typer.Option("--template", help="The SAM template; by default that of this checkout."),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", metavar="KEY=VALUE", help="Overrides a template parameter."),
]
StateOption = Annotated[
    Path | None, typer.Option("--state", help="Folder for logs; by default a new temporary one.")
]


@app.command()
def up(
    port: Annotated[int, typer.Option(help="Port of the AWS endpoint; 0 takes a free one.")] = 0,
    http_port: Annotated[
        int, typer.Option(help="Port of the HTTP API, as of the Iceberg catalog; 0: a free one.")
    ] = 0,
    triggers: Annotated[
        bool,
        typer.Option(
            "--triggers/--no-triggers",
            help="Whether queues and schedules start functions; else only `local invoke` does.",
        ),
    ] = True,
    state: StateOption = None,
    template: TemplateOption = None,
    parameter: ParameterOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run it in the background; `local down` stops it.")
    ] = False,
) -> None:
    """Run the stack until Ctrl-C. Prints the variables to export for any AWS client.

    Its data is gone when it stops; an instance that stays on this machine is a folder.
    """
    folder = state or _new_state_folder()
    if detach:
        arguments = [f"--port={port}", f"--http-port={http_port}", f"--state={folder}"]
        arguments += [] if triggers else ["--no-triggers"]
        arguments += [f"--template={template.resolve()}"] if template else []
        arguments += [f"--parameter={each}" for each in parameter or ()]
        _print_exports(detached.start(arguments, folder).environment)
        note(f"{detached.UP}; `dormouse local down` stops it{_FATE}")
        return
    with (
        _stack(template, parameter, folder, port, http_port, triggers) as stack,
        interruptible() as interruptions,
    ):
        stack.when_aws_ends(lambda: interruptions.put(_AWS_ENDED))
        _print_exports(stack.environment)
        _describe(stack)
        note(f"{detached.UP}; Ctrl-C stops it{_FATE}")
        if interruptions.get() == _AWS_ENDED:
            raise LocalStackError(
                "the embedded AWS has ended, and with it the stack",
                hint=f"see {folder / 'logs' / 'aws.log'}, and start the stack again",
            )
        note("stopping")


@app.command()
def down() -> None:
    """Stop the stack that runs in the background, and with it its data."""
    stack = _running()
    detached.stop(stack)
    note("the stack has stopped")


@app.command()
def status() -> None:
    """Show the stack that runs in the background; the exit code is 3 if none does."""
    for name, value in _running().facts():
        typer.echo(f"{name:10}{value}")


@app.command()
def env() -> None:
    """Print the variables of the stack in the background: eval "$(dormouse local env)"."""
    stack = _running()
    if not stack.endpoint_url:
        raise LocalStackError("the local stack is starting", hint="try again in some seconds")
    _print_exports(stack.environment)


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")],
    state: StateOption = None,
    template: TemplateOption = None,
    parameter: ParameterOption = None,
) -> None:
    """Run a command against a fresh stack, stop the stack, and pass on the exit code."""
    folder = state or _new_state_folder()
    with _stack(template, parameter, folder) as stack:
        code = run_command(command, {**_inherited(os.environ), **stack.environment})
    if state is None and code == 0:
        shutil.rmtree(folder)  # no one will ask for the logs
    raise typer.Exit(code)


@app.command()
def invoke(
    function: Annotated[
        str, typer.Argument(metavar="FUNCTION", help="A stage, such as ingest, or a logical id.")
    ],
    event: Annotated[
        Path, typer.Argument(metavar="EVENT.json", help="The event, such as a file of events/.")
    ],
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="AWS_ENDPOINT_URL", help="The stack to run against, of local up."
        ),
    ] = None,
    template: TemplateOption = None,
    parameter: ParameterOption = None,
) -> None:
    """Run one function on one event, as sam local invoke does, without a container.

    Prints the result, and to standard error the function's log, its time and its memory. The exit
    code is 1 if the function failed. Only the local stack's credentials are used.
    """
    payload = read_event(event)
    if endpoint is None:
        raise LocalStackError(
            "no stack to run the function against",
            hint="export the lines that `dormouse local up` prints, or give --endpoint URL",
        )
    parameters = parse_parameters([*_exported_instance(), *(parameter or [])])
    with needs_extra("local", "functions on this machine"):
        from dormouse_cli.local.lambda_host import check_endpoint, run_once
        from dormouse_cli.local.resources import aws_environment
        from dormouse_cli.local.stack import inherited
        from dormouse_cli.local.template import read
    check_endpoint(endpoint)
    planned = read(template or find_template(), parameters, endpoint).function(function)
    environment = {**inherited(), **aws_environment(endpoint)}
    with tempfile.TemporaryDirectory(prefix="dormouse-invoke-") as folder:
        invoked = run_once(planned, payload, environment, Path(folder), str(uuid.uuid4()))
    typer.echo(invoked.log, err=True, nl=False)
    note(
        f"{planned.name}: {invoked.seconds:.2f} s with its start, at most "
        f"{invoked.peak_bytes / 1e6:.0f} MB of memory; on Lambda it has "
        f"{planned.timeout_seconds} s and {planned.memory_mb} MB"
    )
    typer.echo(invoked.outcome.payload.decode())
    if invoked.outcome.failed:
        raise typer.Exit(1)


def _exported_instance() -> list[str]:
    """The parameter that says which instance a running stack is, as `local up` exports it."""
    name = os.environ.get("DORMOUSE_INSTANCE", "")
    return [f"Instance={name}"] if name and not is_folder(name) else []


def read_event(path: Path) -> bytes:
    """Return the event in a file.
    Raises LocalStackError: there is no such file, or it is not JSON.
    """
    try:
        payload = path.read_bytes()
        json.loads(payload)
    except OSError as error:
        raise LocalStackError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # of the text's encoding, too
        raise LocalStackError(f"{path} is not JSON: {error}") from error
    return payload


def _running() -> detached.Detached:
    stack = detached.running()
    if stack is None:
        raise NotFoundError(
            "no local stack runs in the background", hint="dormouse local up --detach starts one"
        )
    return stack


def _print_exports(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        print(f"export {name}={shlex.quote(value)}", flush=True)


def parse_parameters(texts: Sequence[str]) -> dict[str, str]:
    """Parameters of the form `Key=Value`, over those of the local stack."""
    parameters = dict(LOCAL_PARAMETERS)
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise LocalStackError(
                f"{text!r} is no parameter of the template", hint="write --parameter Key=Value"
            )
        parameters[key] = value
    return parameters


def find_template() -> Path:
    """The template that this package was installed with, or that of the checkout it lies in."""
    project = find_project()
    if project is None:
        raise LocalStackError(
            f"there is no {TEMPLATE} beside or above the installed package",
            hint="name one by --template",
        )
    return project / TEMPLATE


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment for a command, with this very `dormouse` first on its path.

    No profile, token or endpoint of the caller's may lead the command to a real account.
    """
    variables = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    own = str(Path(sys.executable).parent)
    return {**variables, "PATH": os.pathsep.join(filter(None, (own, variables.get("PATH"))))}


@contextmanager
def _stack(
    template: Path | None,
    parameters: Sequence[str] | None,
    folder: Path,
    port: int = 0,
    http_port: int = 0,
    triggers: bool = True,
) -> Iterator["LocalStack"]:
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    values = parse_parameters(parameters or [])
    with needs_extra("local", "the local stack"):
        from dormouse_cli.local.stack import LocalStack
    stack = LocalStack(
        template or find_template(),
        values,
        folder,
        port=port,
        http_port=http_port,
        triggers=triggers,
    )
    with stack:
        note(f"logs are in {folder / 'logs'}")
        yield stack


def _new_state_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="dormouse-local-"))


def _describe(stack: "LocalStack") -> None:
    deployment = stack.deployment
    fed = {source.function: source.queue_name for source in deployment.event_sources}
    for function in deployment.functions:
        source = fed.get(function.name)
        note(f"{function.name}{f' ← {source}' if source else ''}")
    for route in deployment.routes:
        url = stack.environment["DORMOUSE_HTTP_API"]
        note(f"{route.function} ← {route.method} {url}{route.path}")
    if deployment.routes:
        uri = console_uri(url, stack.environment["DORMOUSE_HTTP_TOKEN"])
        note(f"console: {uri}")
    names = ", ".join(bucket.name for bucket in deployment.buckets)
    note(f"buckets: {names}")
