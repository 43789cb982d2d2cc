"""What others wrote and our program has in it: THIRD-PARTY-LICENCES, their licences' texts, and gpuvitals.cdx.json, the bill of materials
(CycloneDX 1.6). Of the crates that are linked, Rust's standard library, libdrm's list of names, and the packages whose code or styles are in the web
page.

licences.py FOLDER [flags of cargo]: the flags (--no-default-features --features agent) say which program. The same sources give the same bytes.
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid
from urllib.parse import quote

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TARGET = "x86_64-unknown-linux-gnu"
LICENCE_FILE = re.compile(r"(licen[sc]e|copying|notice|copyright|unlicense)", re.IGNORECASE)
# The page's packages that Vite does not list: their styles are in it, not their code.
STYLES = ["tailwindcss"]


def said(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def expression(licence):
    """Of SPDX; old manifests have a slash for `or`."""
    return re.sub(r"\s*/\s*", " OR ", licence)


def texts_of(folder):
    """The licence files of a crate, also those of code that it brings along. A C library under a choice of licences names the other in COPYING."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and LICENCE_FILE.match(path.name) and path.suffix not in (".rs", ".html")]
    found = [path for path in found if path.parent == folder or path.name != "COPYING"]
    return [path.read_text(errors="replace") for path in found]


def crates(flags):
    """The linked crates, and which of them depends on which."""
    tree = said(CARGO, "tree", "-p", "gpuvitals", "--locked", "-e", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", "--target", TARGET, *flags)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines()}
    metadata = json.loads(said(CARGO, "metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET))
    packages = {package["id"]: package for package in metadata["packages"] if (package["name"], "v" + package["version"]) in linked}
    if len(packages) != len(linked):
        sys.exit(f"{len(linked)} crates are linked and {len(packages)} are known")
    sums = {(it["name"], it["version"]): it.get("checksum") for it in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    for package in packages.values():
        package["sum"] = sums[package["name"], package["version"]]
        package["texts"] = texts_of(pathlib.Path(package["manifest_path"]).parent) if package["source"] else []
    for package in packages.values():
        if package["source"] and not package["texts"]:
            package["texts"] = borrowed(package, packages.values())
    edges = {node["id"]: [it["pkg"] for it in node["deps"] if it["pkg"] in packages] for node in metadata["resolve"]["nodes"] if node["id"] in packages}
    return packages, edges


def borrowed(package, all_packages):
    """The texts for a crate whose package has none: a sibling's of its repository, or that of the Apache License, which is the same for everyone."""
    same = lambda other: other["license"] == package["license"] and other["texts"]
    for other in sorted(filter(same, all_packages), key=lambda it: it["name"]):
        if repository(other) == repository(package) or package["name"].startswith(other["name"] + "-"):
            return other["texts"]
    if "Apache-2.0" in expression(package["license"]).split(" OR "):
        return [(ROOT / "LICENSE").read_text()]
    sys.exit(f"{package['name']} has no text of its licence ({package['license']})")


def repository(package):
    return "/".join((package["repository"] or package["id"]).split("/")[:5]).removesuffix(".git")


def page():
    """The packages in the web page: name, version, licence, texts, digest."""
    listed = ROOT / "dashboard/dist/licenses.md"
    if not listed.exists():
        sys.exit("dashboard/dist is missing: make dashboard")
    lock = json.loads((ROOT / "dashboard/package-lock.json").read_text())["packages"]
    found = {}
    for part in re.split(r"^## ", listed.read_text(), flags=re.MULTILINE)[1:]:
        heading, text = part.split("\n", 1)
        name, version, licence = re.fullmatch(r"(\S+) - (\S+) \((.+)\)", heading).groups()
        found[name] = (version, licence, text.strip())
    for name in STYLES:
        folder = ROOT / "dashboard/node_modules" / name
        manifest = json.loads((folder / "package.json").read_text())
        found[name] = (manifest["version"], manifest["license"], (folder / "LICENSE").read_text())
    for name, (version, licence, text) in sorted(found.items()):
        locked = lock["node_modules/" + name]
        if locked["version"] != version:
            sys.exit(f"{name} {version} is built in and {locked['version']} is locked: make dashboard")
        algorithm, digest = locked["integrity"].split("-", 1)
        yield {"name": name, "version": version, "license": licence, "texts": [text], "hash": (algorithm.replace("sha", "SHA-"), base64.b64decode(digest).hex())}


def standard_library():
    rustc = os.environ.get("RUSTC", "rustc")
    version = said(rustc, "--version").split()[1]
    folder = pathlib.Path(said(rustc, "--print", "sysroot").strip()) / "share/doc/rust/licenses"
    texts = [(folder / f"{name}.txt").read_text() for name in ("Apache-2.0", "MIT", "Unicode-3.0")]
    return {"name": "std", "version": version, "license": "(MIT OR Apache-2.0) AND Unicode-3.0", "texts": texts}


def names():
    """The names of AMD GPUs, whose list begins with its source and licence."""
    head = []
    for line in (ROOT / "crates/sources/src/dialect/amd_sysfs/amdgpu.ids").read_text().splitlines():
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").strip())
    version = re.search(r"libdrm (\d[\d.]+)", head[0]).group(1)
    return {"name": "libdrm", "version": version, "license": "MIT", "texts": ["\n".join(head)]}


def licensed(licence):
    """A licence or an expression, as CycloneDX tells them apart."""
    licence = expression(licence)
    return [{"expression": licence}] if " " in licence else [{"license": {"id": licence}}]


def component(name, version, licence, purl, digest=None, **more):
    hashes = {"hashes": [{"alg": digest[0], "content": digest[1]}]} if digest else {}
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "licenses": licensed(licence), "purl": purl} | hashes | more


def bill(packages, edges, generic, web):
    ours = {key: it for key, it in packages.items() if not it["source"]}
    reference = {key: f"pkg:cargo/{it['name']}@{it['version']}" if it["source"] else it["name"] for key, it in packages.items()}
    components = []
    for key, it in packages.items():
        if key in ours:
            if it["name"] != "gpuvitals":
                components.append({"type": "library", "bom-ref": it["name"], "name": it["name"], "version": it["version"], "licenses": licensed(it["license"])})
            continue
        more = {"description": it["description"].strip()} if it["description"] else {}
        if it["repository"]:
            more["externalReferences"] = [{"type": "vcs", "url": it["repository"]}]
        components.append(component(it["name"], it["version"], it["license"], reference[key], ("SHA-256", it["sum"]), **more))
    for purl, it in generic.items():
        components.append(component(it["name"], it["version"], it["license"], f"pkg:generic/{purl}@{it['version']}"))
    for it in web:
        components.append(component(it["name"], it["version"], it["license"], f"pkg:npm/{quote(it['name'])}@{it['version']}", it["hash"]))
    components.sort(key=lambda it: it["bom-ref"])
    program = next(key for key, it in ours.items() if it["name"] == "gpuvitals")
    beside = [it["bom-ref"] for it in components if it["bom-ref"].startswith(("pkg:npm/", "pkg:generic/"))]
    needs = {reference[key]: sorted({reference[other] for other in others}) for key, others in edges.items()}
    needs["gpuvitals"] = sorted(needs["gpuvitals"] + beside)
    needs |= {name: [] for name in beside}
    main = {"type": "application", "bom-ref": "gpuvitals", "name": "gpuvitals", "version": packages[program]["version"], "licenses": licensed(packages[program]["license"])}
    content = {
        "metadata": {"component": main, "tools": {"components": [{"type": "application", "name": "scripts/licences"}]}},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": others} for name, others in sorted(needs.items())],
    }
    # The number of the document: another content, another number.
    serial = uuid.UUID(bytes=hashlib.sha256(json.dumps(content).encode()).digest()[:16], version=4)
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1} | content


def text(third):
    """Each text once, with everyone it belongs to."""
    owners = {}
    for it in third:
        for content in it["texts"]:
            key = " ".join(content.split())
            owners.setdefault(key, (content.strip("\n"), []))[1].append(f"{it['name']} {it['version']}")
    lines = ["gpuvitals has in it what others wrote. Who, and under which licence (SPDX):", ""]
    lines += [f"  {it['name']} {it['version']}: {expression(it['license'])}" for it in third]
    for content, names in owners.values():
        lines += ["", "=" * 100, *[f"  {name}" for name in dict.fromkeys(names)], "-" * 100, content]
    return "\n".join(lines) + "\n"


def main(folder, flags):
    packages, edges = crates(flags)
    generic = {"rust-std": standard_library(), "libdrm": names()}
    has_page = any(it["name"] == "gpuvitals-api" for it in packages.values())
    web = list(page()) if has_page else []
    third = sorted([it for it in packages.values() if it["source"]] + [*generic.values()] + web, key=lambda it: (it["name"], it["version"]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "THIRD-PARTY-LICENCES").write_text(text(third))
    (folder / "gpuvitals.cdx.json").write_text(json.dumps(bill(packages, edges, generic, web), indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
