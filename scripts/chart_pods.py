"""Writes what the pods of the chart mount, and a line of docker run for each: FOLDER VALUES SECRETS. SECRETS has a folder for each Secret."""

import os
import shlex
import sys
from pathlib import Path

import helm_python
import yaml

folder, values, secrets = Path(sys.argv[1]), yaml.safe_load(Path(sys.argv[2]).read_text()) or {}, Path(sys.argv[3])
values["image"] = {"repository": "gpuvitals", "tag": "0.1.0"}
files = helm_python.Chart.load("deploy/helm/gpuvitals").render(values, name="gpuvitals", namespace="gpu-telemetry")
parts = [part for path, text in files.items() if path.endswith(".yaml") for part in yaml.safe_load_all(text) if part]
maps = {part["metadata"]["name"]: part["data"] for part in parts if part["kind"] == "ConfigMap"}
made = {part["metadata"]["name"]: part["stringData"] for part in parts if part["kind"] == "Secret"}


def write(path, text, mode):
    """As the kubelet mounts it: root's, and the group's that the pod names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    os.chown(path, 0, 65532)


def secret(name, key):
    return made[name][key] if name in made else (secrets / name / key).read_bytes()


for name, keys in made.items():
    for key, text in keys.items():
        write(folder / "secrets" / name / key, text, 0o440)
for part in parts:
    if part["kind"] == "Pod":
        name, spec, replicas = part["metadata"]["name"], part["spec"], 1
    elif part["kind"] in ("DaemonSet", "StatefulSet", "Deployment"):
        name, spec, replicas = part["metadata"]["name"], part["spec"]["template"]["spec"], part["spec"].get("replicas", 1)
    else:
        continue
    # NVIDIA's agents need their runtime.
    if "runtimeClassName" in spec:
        continue
    container = spec["containers"][0]
    user = spec["securityContext"]["runAsUser"]
    options = ["--read-only", f"--user={user}:{user}", "--group-add=65532", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    options += [f"--network-alias={name}"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", [])}
    for volume in spec.get("volumes", []):
        home = folder / name / volume["name"]
        if "configMap" in volume:
            for key, text in maps[volume["configMap"]["name"]].items():
                write(home / key, text, 0o644)
        elif "secret" in volume:
            of = volume["secret"]["secretName"]
            items = volume["secret"].get("items") or [{"key": path.name, "path": path.name} for path in (secrets / of).iterdir()]
            for item in items:
                write(home / item["path"], secret(of, item["key"]), volume["secret"]["defaultMode"])
        else:
            options += [f"--mount=type=volume,target={mounted[volume['name']]}"]
            continue
        options += [f"--volume={home}:{mounted[volume['name']]}:ro"]
    for claim in ("data",) if part["kind"] == "StatefulSet" else ():
        if claim not in [volume["name"] for volume in spec.get("volumes", [])] and claim in mounted:
            options += [f"--mount=type=volume,target={mounted[claim]}"]
    for it in container.get("env", []):
        field = it.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        options += [f"--env={it['name']}={field or it['value']}"]
    for at in range(replicas):
        print(shlex.join([f"{name}-{at}", *options, container["image"], *container["args"]]))
