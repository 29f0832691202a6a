"""What each function weighs with its layers, unzipped, against what Lambda allows.

Run by ``make layer`` on layers built for both architectures, and by ``make build`` on what is about
to be deployed: ``layer_sizes.py FOLDER…``, each with a folder for every layer, called as in the
template. Ends with an error if a function leaves less than a twentieth of the limit free.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dormouse_cli.local.resources import load

ROOT = Path(__file__).parents[1]
LIMIT_BYTES = 262_144_000
"""For a function's code and all its layers, unzipped."""
ROOM = 0.05
"""The part of it to leave free: a new version of a library is easily some megabytes larger."""
HEAVIEST = 6


def parts_of_functions(template: Path) -> dict[str, tuple[Path, list[str]]]:
    """Return the folder of each function's code, and the names of its layers."""
    resources: Any = load(template)["Resources"]
    functions = {
        name: resource["Properties"]
        for name, resource in resources.items()
        if resource["Type"] == "AWS::Serverless::Function"
    }
    return {
        name: (
            template.parent / properties["CodeUri"],
            [_layer(layer) for layer in properties.get("Layers", ())],
        )
        for name, properties in functions.items()
    }


def _layer(layer: Mapping[str, Any]) -> str:
    """Return the name of a layer that a function has, be it on a condition."""
    return str(layer["Ref"] if "Ref" in layer else layer["Fn::If"][1]["Ref"])


def size_bytes(folder: Path) -> int:
    """Return the bytes of a file, or of a folder; end with a message if it was not built."""
    sizes = [
        path.lstat().st_size
        for path in (folder, *folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    if not sizes:
        sys.exit(f"{folder} is not built; try: make layer")
    return sum(sizes)


def main(folders: list[Path]) -> int:
    """Print the sizes of layers and functions in each folder; return 1 if one is too large."""
    console = Console(soft_wrap=True)
    functions = parts_of_functions(ROOT / "template.yaml")
    used = sorted({layer for _, layers in functions.values() for layer in layers})
    allowed = int(LIMIT_BYTES * (1 - ROOM))
    too_large = []
    for folder in folders:
        layers = {name: size_bytes(folder / name) for name in used}
        for name in used:
            console.print(
                f"{folder.name} {name}: {layers[name]:,} bytes; {_heaviest(folder / name)}"
            )
        table = Table("function", "layers", "bytes", "of the limit", "verdict", title=folder.name)
        for name, (code, own) in functions.items():
            total = size_bytes(code) + sum(layers[layer] for layer in own)
            verdict = "fits" if total <= allowed else "TOO LARGE"
            if total > allowed:
                too_large.append(f"{name} ({folder.name})")
            table.add_row(name, " ".join(own), f"{total:,}", f"{total / LIMIT_BYTES:.1%}", verdict)
        console.print(table)
    if too_large:
        console.print(
            f"{', '.join(too_large)}: more than {allowed:,} bytes, which leaves less than "
            f"{ROOM:.0%} of Lambda's {LIMIT_BYTES:,} free; drop or prune a dependency "
            "(shared/layer-*.txt, shared/prune_layer.py)"
        )
    return 1 if too_large else 0


def _heaviest(layer: Path) -> str:
    """Name the packages and archives that weigh most, in megabytes."""
    parts = [path for path in layer.glob("*/*") if path.is_dir() or path.suffix == ".gz"]
    sizes = sorted(((size_bytes(path), path.name) for path in parts), reverse=True)
    return ", ".join(f"{name} {size / 1e6:.1f} MB" for size, name in sizes[:HEAVIEST])


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
