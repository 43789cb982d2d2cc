"""Of the two files that licences.py makes: CycloneDX's schema, SPDX's names, nothing missing. licences_check.py FOLDER PROGRAM, the program with its
messages of panics, which name the crates that they come from. The last line counts."""

import json
import pathlib
import re
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

ROOT = pathlib.Path(__file__).resolve().parent.parent
folder, program = map(pathlib.Path, sys.argv[1:])
counts = {True: 0, False: 0}


def check(what, offenders):
    counts[not offenders] += 1
    if offenders:
        print(f"FAILED: {what}: {str(offenders)[:500]}")


document = (folder / "gpuvitals.cdx.json").read_text()
text = (folder / "THIRD-PARTY-LICENCES").read_text()
bill = json.loads(document)
components = bill["components"]
others = {f"{it['name']} {it['version']}" for it in components if "purl" in it}

check("the schema of CycloneDX 1.6", JsonStrictValidator(SchemaVersion.V1_6).validate_str(document))

spdx = get_spdx_licensing()
refused = {}
for it in components + [bill["metadata"]["component"]]:
    licences = [one.get("expression") or one["license"]["id"] for one in it.get("licenses", [])]
    found = spdx.validate(licences[0]).errors if len(licences) == 1 else ["none, or several"]
    if found:
        refused[it["name"]] = found
check("licences by SPDX's names", refused)
check("components with a digest of their package", [it["name"] for it in components if it.get("purl", "").startswith(("pkg:cargo", "pkg:npm")) and not it.get("hashes")])

references = {it["bom-ref"] for it in components} | {"gpuvitals"}
named = [other for it in bill["dependencies"] for other in [it["ref"], *it["dependsOn"]]]
check("references of dependencies", [name for name in named if name not in references] + sorted(references - set(named)))
needed = {other for it in bill["dependencies"] for other in it["dependsOn"]}
check("components that nothing depends on", sorted(references - needed - {"gpuvitals"}))

head, *groups = text.split("\n" + "=" * 100 + "\n")
longest = {}
for group in groups:
    names, content = group.split("-" * 100, 1)
    for name in filter(None, map(str.strip, names.splitlines())):
        longest[name] = max(longest.get(name, 0), len(content))
check("components with a text of their licence", sorted(others ^ longest.keys()))
# Some files only say which licences hold.
check("texts that are none", [name for name, length in longest.items() if length < 500])
check("components in the list of licences", sorted(name for name in others if f"\n  {name}: " not in head))

paths = re.findall(rb"(?<!/rust/deps)/([a-z0-9_-]+?)-(\d+\.\d+\.\d+[0-9A-Za-z.+-]*)/src/", program.read_bytes())
crates = {f"{name} {version}" for name, version in (map(bytes.decode, it) for it in paths)}
check("crates that the program names", sorted(crates - others) if len(crates) > 50 else [f"only {len(crates)} are found"])

page = json.loads((ROOT / "dashboard/package.json").read_text())["dependencies"]
check("packages of the page", [name for name in page if not any(it["name"] == name and it["purl"].startswith("pkg:npm/") for it in components if "purl" in it)])
banners = "".join(path.read_text() for path in (ROOT / "dashboard/dist/assets").glob("*.css"))
check("styles of others", [it for it in re.findall(r"/\*!\s*(\w+) v([0-9.]+)", banners) if " ".join(it) not in others])

print(f"{counts[True]} passed, {counts[False]} failed")
sys.exit(counts[False] > 0)
