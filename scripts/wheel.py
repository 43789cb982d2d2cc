"""Whether a wheel is what it says: its size, its tag, what is in it, and the newest symbols of glibc that its program needs."""

import re
import sys
import zipfile
from pathlib import Path

SIZE_MAX = 30_000_000
GLIBC = (2, 28)

wheel = Path(sys.argv[1])
faults = []
size = wheel.stat().st_size
if size > SIZE_MAX:
    faults.append(f"{size} bytes, more than {SIZE_MAX}")
tag = "py3-none-manylinux_{}_{}_".format(*GLIBC)
if tag not in wheel.name:
    faults.append(f"its name has no {tag}")
with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
    for wanted in (r"gpuvitals/py\.typed", r"gpuvitals/__init__\.py", r".*\.data/scripts/gpuvitals", r".*\.dist-info/licenses/LICENSE"):
        if not any(re.fullmatch(wanted, name) for name in names):
            faults.append(f"has no {wanted}")
    faults += [f"has {name}" for name in names if "tests" in name or name.endswith((".so", ".pyc"))]
    for name in names:
        if name.endswith("scripts/gpuvitals"):
            versions = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_([0-9.]+[0-9])\0", archive.read(name))}
            if max(versions) > GLIBC:
                faults.append(f"needs glibc {max(versions)}")
for fault in faults:
    print(f"{wheel.name}: {fault}")
print(f"{wheel.name}: {size / 1e6:.1f} MB")
sys.exit(bool(faults))
