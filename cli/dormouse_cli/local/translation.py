"""Translates a SAM template to CloudFormation, offline, by AWS's translator; used by `template`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from yaml import YAMLError

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.intrinsics import Document
from dormouse_cli.local.loops import expand_loops, has_loops
from dormouse_cli.local.plan import Json
from dormouse_cli.local.sessions import isolated_session

_LOOPS = "AWS::LanguageExtensions"
_CODE_PROPERTIES = {
    "AWS::Serverless::Function": ("Function", "CodeUri"),
    "AWS::Serverless::LayerVersion": ("LayerVersion", "ContentUri"),
}


@dataclass(frozen=True, slots=True)
class Translated:
    """A CloudFormation template, and where the code of its functions and layers lies.

    `code` is keyed by the logical ids of the SAM template, which the translated resources carry as
    the S3 key of their code.
    """

    resources: Mapping[str, Document]
    mappings: Mapping[str, Json]
    conditions: Mapping[str, Json]
    rules: Mapping[str, Document]
    parameters: Mapping[str, str]
    code: Mapping[str, Path]


def translate(path: Path, overrides: Mapping[str, str], region: str) -> Translated:
    """Read and translate the template; `overrides` win over the parameters' defaults."""
    # The translator takes long to import. It has no types: what it gives is cast.
    from samtranslator.model.exceptions import (  # type: ignore[import-untyped]
        InvalidDocumentException,
    )
    from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]
    from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
    from samtranslator.utils.py27hash_fix import (  # type: ignore[import-untyped]
        to_py27_compatible_template,
        undo_mark_unicode_str_in_template,
    )

    document = load(path)
    parameters = _parameters(document, overrides)
    code = _take_code(document, path.parent)
    values = dict(parameters)
    to_py27_compatible_template(document, values)
    translator = Translator(None, Parser(), boto_session=isolated_session(region))
    try:
        translated = translator.translate(document, values, get_managed_policy_map=dict)
    except InvalidDocumentException as error:
        causes = "; ".join(cause.message for cause in error.causes)
        raise TemplateError(f"{path} is not a valid SAM template: {causes}") from error
    result = cast(Document, undo_mark_unicode_str_in_template(translated))
    return Translated(
        resources=cast(Mapping[str, Document], result["Resources"]),
        mappings=cast(Mapping[str, Json], result.get("Mappings", {})),
        conditions=cast(Mapping[str, Json], result.get("Conditions", {})),
        rules=cast(Mapping[str, Document], document.get("Rules", {})),
        parameters=parameters,
        code=code,
    )


def load(path: Path) -> Document:
    """Return the template as it is written, with its loops expanded if AWS would expand them."""
    from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

    try:
        document = cast(Document, yaml_parse(path.read_text()))
    except (OSError, YAMLError) as error:
        raise TemplateError(f"the template {path} cannot be read: {error}") from error
    transforms = document.get("Transform")
    transforms = transforms if isinstance(transforms, list) else [transforms]
    if transforms[:1] == [_LOOPS]:
        return cast(Document, expand_loops(document, path.name))
    if has_loops(document):
        raise TemplateError(f"{path}: loops need {_LOOPS} as the first Transform")
    return document


def _parameters(document: Document, overrides: Mapping[str, str]) -> dict[str, str]:
    declared = cast(Mapping[str, Document], document.get("Parameters", {}))
    unknown = sorted(set(overrides) - set(declared))
    if unknown:
        raise TemplateError(
            f"the template has no parameter {', '.join(unknown)}; "
            f"it has {', '.join(sorted(declared)) or 'none'}"
        )
    values = {name: str(of["Default"]) for name, of in declared.items() if "Default" in of}
    values.update(overrides)
    missing = sorted(set(declared) - set(values))
    if missing:
        raise TemplateError(f"the parameters {', '.join(missing)} have no default: give a value")
    return values


def _take_code(document: Document, root: Path) -> dict[str, Path]:
    """Note where code lies, and put a name for it in its place: the translator refuses folders."""
    everywhere = cast(Mapping[str, Document], document.get("Globals", {}))
    code = {}
    for logical_id, resource in cast(Mapping[str, Document], document["Resources"]).items():
        if resource["Type"] not in _CODE_PROPERTIES:
            continue
        section, name = _CODE_PROPERTIES[resource["Type"]]
        properties = cast(Document, resource.setdefault("Properties", {}))
        folder = properties.get(name, everywhere.get(section, {}).get(name))
        if not isinstance(folder, str):
            raise TemplateError(f"{logical_id}.{name}: expected a folder, found {folder!r}")
        if not (root / folder).is_dir():
            raise TemplateError(f"{logical_id}.{name}: there is no folder {root / folder}")
        code[logical_id] = (root / folder).resolve()
        properties[name] = f"s3://local/{logical_id}"
    return code
