"""Write the bill of materials of a release: `python -m scripts.bill FILE`.

In CycloneDX, it lists what heedful needs with all of its extras, as it is locked and
tested, with the hashes of the lock. Who installs heedful may get other releases: its
requirements are ranges.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from scripts import lock


def component(name: str, version: str, kind: ComponentType) -> Component:
    """Return the component of a distribution, with its address as a package."""
    address = PackageURL(type="pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=kind,
        purl=address,
        bom_ref=str(address),
    )


def locked(blocks: dict[str, str]) -> Iterator[Component]:
    """Yield the components of the blocks of a lock, with their hashes."""
    for name, block in blocks.items():
        version = block.partition("==")[2].split()[0]
        distribution = component(name, version, ComponentType("library"))
        for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", block):
            distribution.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=digest))
        yield distribution


def bill() -> Bom:
    """Return the bill of this checkout."""
    text = (lock.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    requirements = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    blocks = lock.blocks_for(lock.LOCK.read_text(encoding="utf-8"), requirements)

    heedful = component("heedful", project["version"], ComponentType.APPLICATION)
    heedful.licenses.add(LicenseExpression(project["license"]))
    materials = Bom()
    materials.metadata.component = heedful
    by_name = {part.name: part for part in locked(blocks)}
    materials.components.update(by_name.values())

    # The lock says below each pin what needs it.
    needs: dict[str, list[Component]] = {name: [] for name in ("heedful", *by_name)}
    for name, block in blocks.items():
        for needed_by in set(re.findall(r"#\s+(?:via )?([\w.-]+)", block)):
            if needed_by in needs:
                needs[needed_by].append(by_name[name])
    materials.register_dependency(heedful, needs.pop("heedful"))
    for name, parts in needs.items():
        materials.register_dependency(by_name[name], parts)
    return materials


def main(file: Path) -> int:
    """Write the bill, and say how many components it has."""
    materials = bill()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = JsonV1Dot6(materials).output_as_string(indent=1)
    file.write_text(f"{text}\n", encoding="utf-8")
    print(f"{file}: {len(materials.components)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
