"""Renders the Helm chart for every value set in its ci/ and checks the objects, offline; and what the image is built from."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import helm_python
import jsonschema
import kubernetes_validate
import yaml

CHART = Path("deploy/helm/gpuvitals")
PLAIN = Path("deploy/kubernetes")
DOCKERFILE = Path("deploy/docker/Dockerfile")
NVIDIA_SMI = Path("crates/sources/src/dialect/nvidia_smi")
FIELDS_OF_NVIDIA_SMI = Path("crates/core/src/foreign/nvidia_smi.rs")
NAMESPACE = "gpu-telemetry"
BINARY = os.environ["GPUVITALS_BIN"]
# The oldest and the newest API that the chart is checked against, and one between.
VERSIONS = ["1.30", "1.34", "1.37"]
TOKENS = {"tokens", "agent", "collector", "gateway", "reader", "admin"}
# Secrets that the value sets say exist already, with their keys.
SECRETS = {
    "gpuvitals-tokens": TOKENS,
    "our-tokens": TOKENS,
    "our-certificate": {"tls.crt", "tls.key", "ca.crt"},
    "nats": {"user.creds", "ca.pem"},
    "postgres": {"password", "root.pem"},
    "cluster-tokens": {"east.token", "east-ca.pem"},
    "receiver": {"token"},
}
DIGEST = "sha256:" + "0" * 64
AGENT_DIGEST = "sha256:" + "1" * 64
failed = 0


def check(what, holds, why=""):
    """Counts a check that fails."""
    global failed
    failed += not holds
    if not holds:
        print(f"{what}: {why}" if why != "" else what)


def equal(what, found, wanted):
    check(what, found == wanted, f"{found!r}, not {wanted!r}")


def render(values, chart=CHART, release="gpuvitals", ending=".yaml"):
    """The objects, each with the file it is from, without the notes."""
    files = helm_python.Chart.load(str(chart)).render(values, name=release, namespace=NAMESPACE)
    return {Path(path).stem: text for path, text in files.items() if path.endswith(ending)}


def objects(files):
    return [part for text in files.values() for part in yaml.safe_load_all(text) if part]


def named(parts, kind):
    return {part["metadata"]["name"]: part for part in parts if part["kind"] == kind}


def pods(parts):
    """Every pod specification, with its labels, by the name of its object."""
    found = {}
    for part in parts:
        if part["kind"] == "Pod":
            found[part["metadata"]["name"]] = (part["metadata"]["labels"], part["spec"])
        elif part["kind"] in ("DaemonSet", "StatefulSet", "Deployment"):
            template = part["spec"]["template"]
            found[part["metadata"]["name"]] = (template["metadata"]["labels"], template["spec"])
    return found


def selects(selector, labels):
    """Whether a label selector takes a pod."""
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return exact and all(
        labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", [])
    )


# ---- what every object must be

ENDPOINT = {
    "type": "object",
    "required": ["port", "path"],
    "additionalProperties": False,
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string"},
        "interval": {"type": "string"},
        "scheme": {"enum": ["http", "https"]},
        "honorLabels": {"type": "boolean"},
        "authorization": {"type": "object"},
        "tlsConfig": {"type": "object"},
        "relabelings": {"type": "array"},
    },
}
SELECTOR = {"type": "object", "additionalProperties": False, "properties": {"matchLabels": {}, "matchExpressions": {}}}
# The operator's kinds as far as the chart uses them.
OPERATOR = {
    "PodMonitor": {"selector": SELECTOR, "podMetricsEndpoints": {"type": "array", "items": ENDPOINT}},
    "ServiceMonitor": {"selector": SELECTOR, "endpoints": {"type": "array", "items": ENDPOINT}},
    "PrometheusRule": {"groups": {"type": "array", "minItems": 1}},
}


def valid(name, part):
    where = f"{name}: {part['kind']} {part['metadata']['name']}"
    if part["kind"] in OPERATOR:
        fields = OPERATOR[part["kind"]]
        schema = {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}
        try:
            jsonschema.validate(part["spec"], schema)
            check(where, True)
        except jsonschema.ValidationError as error:
            check(where, False, error.message)
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(part, version, strict=True)
            check(where, True)
        except kubernetes_validate.ValidationError as error:
            check(f"{where}, Kubernetes {version}", False, error.message)


def safe(name, values, parts):
    """Rights of the containers, and what no pod may have."""
    for pod, (labels, spec) in pods(parts).items():
        where = f"{name}: pod {pod}"
        component = labels["app.kubernetes.io/component"]
        vendor = component.removeprefix("agent-") if component.startswith("agent-") else None
        own = values.get("agent", {}).get(vendor, {}) if vendor else {}
        is_privileged = own.get("privileged", False)
        pod_resources = own.get("podResources", vendor == "nvidia")
        reads_cluster = component == "gateway" and values.get("kubernetes", {}).get("own", {}).get("enabled", False)
        has_token = reads_cluster or bool(vendor) and values.get("agent", {}).get("nodeLabels", True)
        equal(f"{where}: token of the account", spec["automountServiceAccountToken"], has_token)
        equal(f"{where}: links of services", spec["enableServiceLinks"], False)
        check(f"{where}: network of the host", "hostNetwork" not in spec and "hostIPC" not in spec)
        equal(f"{where}: pids of the host", spec.get("hostPID", False), bool(vendor) and values.get("agent", {}).get("hostPID", False))
        equal(f"{where}: seccomp", spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        is_root = bool(vendor) and (is_privileged or pod_resources)
        equal(f"{where}: user", spec["securityContext"]["runAsUser"], 0 if is_root else 65532)
        equal(f"{where}: not root", spec["securityContext"].get("runAsNonRoot", False), not is_root)
        host_paths = {volume["hostPath"]["path"] for volume in spec.get("volumes", []) if "hostPath" in volume}
        wanted = {"/var/lib/kubelet/pod-resources"} if vendor and pod_resources else set()
        if wanted and spec.get("hostPID", False):
            wanted.add("/var/log/containers")
        own_paths = {values.get("agent", {}).get(name, {}).get("hostPath") for name in ("spool", "flight")} - {None, ""}
        equal(f"{where}: directories of the host", host_paths, wanted | (own_paths if vendor else set()))
        for container in spec["containers"]:
            rights = container["securityContext"]
            equal(f"{where}: privileged", rights.get("privileged", False), is_privileged)
            equal(f"{where}: root file system", rights["readOnlyRootFilesystem"], True)
            if not is_privileged:
                equal(f"{where}: capabilities", rights["capabilities"], {"drop": ["ALL"]})
                equal(f"{where}: escalation", rights["allowPrivilegeEscalation"], False)
            if spec.get("restartPolicy") == "Never":
                continue
            requests, limits = container["resources"]["requests"], container["resources"]["limits"]
            equal(f"{where}: requests", set(requests), {"cpu", "memory"})
            equal(f"{where}: limits", set(limits), {"memory"})
            probes = {probe: container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
            equal(f"{where}: probes", probes, {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/healthz" if component == "gateway" else "/readyz"})
        if vendor == "nvidia":
            variables = {it["name"]: it.get("value") for it in spec["containers"][0]["env"]}
            equal(f"{where}: devices", variables.get("NVIDIA_VISIBLE_DEVICES"), "all")
            equal(f"{where}: capabilities of the driver", variables.get("NVIDIA_DRIVER_CAPABILITIES"), "utility")
            equal(f"{where}: runtime", spec.get("runtimeClassName", ""), own.get("runtimeClassName", "nvidia"))
        if vendor:
            terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            check(f"{where}: nodes by one label of several", len(terms) > 1)


def fits(name, values, parts):
    """Names that objects use exist."""
    all_pods = pods(parts)
    accounts = set(named(parts, "ServiceAccount"))
    maps = {it: set(part["data"]) for it, part in named(parts, "ConfigMap").items()}
    secrets = SECRETS | {it: set(part["stringData"]) for it, part in named(parts, "Secret").items()}
    for part in parts:
        kind, where, spec = part["kind"], f"{name}: {part['kind']} {part['metadata']['name']}", part.get("spec", {})
        if kind in ("DaemonSet", "StatefulSet", "Deployment"):
            labels, pod = all_pods[part["metadata"]["name"]]
            check(f"{where}: selector", selects(spec["selector"], labels))
            check(f"{where}: no version in the selector", "app.kubernetes.io/version" not in spec["selector"]["matchLabels"])
            others = [it for it, (theirs, _) in all_pods.items() if it != part["metadata"]["name"] and selects(spec["selector"], theirs)]
            equal(f"{where}: others that it selects", others, [])
            if values.get("serviceAccounts", {}).get("create", True):
                check(f"{where}: account", pod["serviceAccountName"] in accounts, pod["serviceAccountName"])
        if kind == "StatefulSet":
            check(f"{where}: service", spec["serviceName"] in named(parts, "Service"))
        selected = spec.get("selector", spec.get("podSelector"))
        if kind == "Service":
            selected = {"matchLabels": selected}
        if kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            taken = [it for it, (labels, _) in all_pods.items() if selects(selected, labels)]
            check(f"{where}: selects pods", taken)
        if kind == "Service":
            ports = {port["name"] for it in taken for container in all_pods[it][1]["containers"] for port in container["ports"]}
            check(f"{where}: ports", {port["targetPort"] for port in spec["ports"]} <= ports)
        if kind == "NetworkPolicy":
            for rule in spec.get("ingress", []):
                for it in taken:
                    ports = {port["name"] for container in all_pods[it][1]["containers"] for port in container.get("ports", [])}
                    check(f"{where}: ports", {port["port"] for port in rule["ports"]} <= ports)
        if kind == "PodMonitor":
            taken = [it for it, (labels, _) in all_pods.items() if selects(selected, labels)]
            equal(f"{where}: pods", taken, [it for it in all_pods if "agent" in it])
        if kind == "ServiceMonitor":
            services = [it for it, service in named(parts, "Service").items() if selects(selected, service["metadata"]["labels"])]
            equal(f"{where}: services", len(services), 3)
        if kind == "HorizontalPodAutoscaler":
            target = named(parts, "Deployment")[spec["scaleTargetRef"]["name"]]
            check(f"{where}: replicas are its own", "replicas" not in target["spec"])
    for pod, (_, spec) in all_pods.items():
        where = f"{name}: pod {pod}"
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        claims = named(parts, "StatefulSet").get(pod, {"spec": {}})["spec"].get("volumeClaimTemplates", [])
        mounted = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0].get("volumeMounts", [])}
        equal(f"{where}: mounts", sorted(mounted), sorted(list(volumes) + [claim["metadata"]["name"] for claim in claims]))
        files = {}
        for volume in volumes.values():
            if "configMap" in volume:
                found = maps.get(volume["configMap"]["name"], set())
                check(f"{where}: {volume['configMap']['name']}", found)
                files |= {f"{mounted[volume['name']]}/{key}": None for key in found}
            elif "secret" in volume:
                secret = volume["secret"]
                keys = secrets.get(secret["secretName"], set())
                items = secret.get("items", [{"key": key, "path": key} for key in keys])
                check(f"{where}: keys of {secret['secretName']}", {it["key"] for it in items} <= keys, items)
                equal(f"{where}: mode of {secret['secretName']}", secret["defaultMode"], 0o440)
                files |= {f"{mounted[volume['name']]}/{it['path']}": None for it in items}
        settled(where, spec, mounted, files, maps)


def settled(where, spec, mounted, files, maps):
    """The settings of a pod: accepted by the binary, and of files that are mounted and directories that can be written."""
    container = spec["containers"][0]
    for argument in container["args"]:
        path = argument.split("=")[-1]
        if path.startswith("/"):
            check(f"{where}: {argument}", path in files)
    if "--config" not in container["args"]:
        return
    text = settings_of(spec, maps_of.get(where.split(":")[0], {}))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        environment = {"PATH": os.environ["PATH"], "NODE_NAME": "n1", "POD_NAME": "p", "POD_NAMESPACE": "n"}
        told = subprocess.run([BINARY, "config", "check", "--config", file.name], capture_output=True, text=True, env=environment)
        check(f"{where}: settings", told.returncode == 0, told.stderr or told.stdout)
    settings = yaml.safe_load(text)
    for section, keys in settings.items():
        for key, value in keys.items():
            if isinstance(value, str) and value.startswith("/"):
                is_file = value.startswith("/etc/gpuvitals/")
                is_there = value in files if is_file else any(value.startswith(path + "/") for path in mounted.values())
                check(f"{where}: {section}.{key}", is_there, f"{value} is not mounted")
    account = "/var/run/secrets/kubernetes.io/serviceaccount/"
    for cluster in settings.get("kubernetes", {}).get("clusters", []):
        for key in ["token_file", "ca_file"]:
            value = cluster[key]
            is_there = value in files or (value.startswith(account) and spec["automountServiceAccountToken"])
            check(f"{where}: {cluster['name']}: {key}", is_there, f"{value} is not mounted")
    ports = {section: keys[key] for section, key in SECTION_PORTS if (keys := settings.get(section)) and key in keys}
    equal(f"{where}: port", list(ports.values()), [container["ports"][0]["containerPort"]])


SECTION_PORTS = [("agent", "port"), ("broker", "port"), ("collector", "api_port"), ("api", "port")]
maps_of = {}


def settings_of(spec, maps):
    config = next(volume for volume in spec["volumes"] if volume["name"] == "config")
    return maps[config["configMap"]["name"]]["data"]["gpuvitals.yaml"]


# ---- who reaches whom

def reaches(parts, source, target, port):
    """Whether the policies let pods of a component connect to another's port."""
    labels = {labels["app.kubernetes.io/component"]: (labels, spec) for labels, spec in pods(parts).values()}
    policies = [part["spec"] for part in parts if part["kind"] == "NetworkPolicy"]

    def lets(direction, here, there):
        field, peers = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
        applied = [it for it in policies if direction in it["policyTypes"] and selects(it["podSelector"], labels[here][0])]
        names = {it["name"]: it["containerPort"] for it in labels[target][1]["containers"][0].get("ports", [])}
        return not applied or any(
            any("podSelector" in peer and selects(peer["podSelector"], labels[there][0]) for peer in rule[peers])
            and any(names.get(it["port"], it["port"]) == port for it in rule["ports"])
            for it in applied
            for rule in it.get(field, [])
        )

    return lets("Egress", source, target) and lets("Ingress", target, source)


def connections(parts):
    needed = {
        ("agent-nvidia", "broker", 9090), ("agent-amd", "broker", 9090), ("collector", "broker", 9090),
        ("gateway", "broker", 9090), ("gateway", "collector", 8080), ("test", "gateway", 8081),
    }  # fmt: skip
    ports = {"broker": 9090, "collector": 8080, "gateway": 8081, "agent-nvidia": 9400, "agent-amd": 9400}
    sources = [labels["app.kubernetes.io/component"] for labels, _ in pods(parts).values()]
    for source in sources:
        for target, port in ports.items():
            if source != target:
                wanted = (source, target, port) in needed
                equal(f"{source} reaches {target}", reaches(parts, source, target, port), wanted)


# ---- the checks

def value_sets():
    sets = {path.stem: yaml.safe_load(path.read_text()) or {} for path in sorted(CHART.glob("ci/*.yaml"))}
    check("there are eight value sets", len(sets) >= 8)
    for name, values in sets.items():
        report = helm_python.lint(str(CHART), values, strict=True, namespace=NAMESPACE)
        equal(f"{name}: lint", [it for it in report["messages"] if it["severity"] > 1] + report["errors"], [])
        parts = objects(render(values))
        maps_of[name] = named(parts, "ConfigMap")
        ids = [(part["kind"], part["metadata"].get("namespace"), part["metadata"]["name"]) for part in parts]
        equal(f"{name}: one object a name", len(ids), len(set(ids)))
        for part in parts:
            valid(name, part)
        safe(name, values, parts)
        fits(name, values, parts)
        rights(name, values, parts)
        agent = values.get("agent", {})
        image = agent.get("image", {})
        own = {**agent, "image": {**image, "digest": AGENT_DIGEST}} if image.get("repository") else agent
        pinned = objects(render({**values, "agent": own, "image": {**values.get("image", {}), "digest": DIGEST}}))
        images = [container["image"] for _, spec in pods(pinned).values() for container in spec["containers"]]
        of_agent = AGENT_DIGEST if image.get("repository") else DIGEST
        wanted = lambda image_name: of_agent if "agent" in image_name else DIGEST
        check(f"{name}: images by digest", images and all(it.endswith("@" + wanted(it)) for it in images), images)
    connections(objects(render({})))
    return sets


def rights(name, values, parts):
    """The rendered RBAC, whole."""
    found = [part for part in parts if part["apiVersion"].startswith("rbac.")]
    of_agents = [part for part in found if part["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"]
    found = [part for part in found if part not in of_agents]
    agents = values.get("agent", {})
    wanted = ["ClusterRole", "ClusterRoleBinding"] if agents.get("enabled", True) and agents.get("nodeLabels", True) else []
    equal(f"{name}: rights of agents", [part["kind"] for part in of_agents], wanted)
    for role, binding in [of_agents] if of_agents else []:
        equal(f"{name}: rights of agents", role["rules"], [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}])
        equal(f"{name}: role of agents", binding["roleRef"]["name"], role["metadata"]["name"])
        accounts = {spec["serviceAccountName"] for labels, spec in pods(parts).values() if labels["app.kubernetes.io/component"].startswith("agent-")}
        equal(f"{name}: accounts of agents", accounts, {subject["name"] for subject in binding["subjects"]})
    if not values.get("kubernetes", {}).get("own", {}).get("enabled"):
        equal(f"{name}: rights", found, [])
        return
    roles = {(part["kind"], part["metadata"].get("namespace")): part["rules"] for part in found if "rules" in part}
    wanted = {
        ("ClusterRole", None): [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
        ("Role", "nvidia"): [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
        ],
    }
    equal(f"{name}: rights", roles, wanted)
    account = next(spec["serviceAccountName"] for labels, spec in pods(parts).values() if labels["app.kubernetes.io/component"] == "gateway")
    for part in found:
        if "roleRef" in part:
            subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
            equal(f"{name}: {part['kind']}", part["subjects"], [subject])
            check(f"{name}: {part['kind']}", any(it["metadata"]["name"] == part["roleRef"]["name"] for it in found if it["kind"] == part["roleRef"]["kind"]))
    maps = named(parts, "ConfigMap")
    gateway = next(spec for labels, spec in pods(parts).values() if labels["app.kubernetes.io/component"] == "gateway")
    clusters = yaml.safe_load(settings_of(gateway, maps))["kubernetes"]["clusters"]
    equal(f"{name}: clusters", [cluster["name"] for cluster in clusters], ["lab", "east"])
    equal(f"{name}: namespace of the driver", clusters[0]["driver_namespace"], "nvidia")
    policy = next(part for part in parts if part["kind"] == "ValidatingAdmissionPolicy")["spec"]
    equal(f"{name}: account of the policy", policy["matchConditions"][0]["expression"], f'request.userInfo.username == "system:serviceaccount:{NAMESPACE}:{account}"')
    known = json.loads(re.match(r"(\[.*\])\.exists", policy["validations"][-1]["expression"].strip()).group(1))
    lets = lambda command: any(re.fullmatch(pattern, command) for pattern in known)
    ours = [tool + " " + arguments for arguments in arguments_of_nvidia_smi() for tool in ["nvidia-smi", "timeout -k 1 8 nvidia-smi"]]
    for command in ours:
        check(f"{name}: the policy refuses {command}", lets(command))
    for command in [
        "nvidia-smi --gpu-reset",
        "nvidia-smi -pm 1",
        "nvidia-smi -c 1",
        "nvidia-smi --query-gpu=uuid --format=csv --filename=/host/etc/passwd",
        "sh -c nvidia-smi pmon -c 1 -s um",
        "nvidia-smi pmon -c 1 -s um; id",
    ]:
        check(f"{name}: the policy lets {command} run", not lets(command))


def arguments_of_nvidia_smi():
    """What the program's dialect runs the tool with: its calls, with every field that it may ask for."""
    texts = {path.stem: path.read_text() for path in [NVIDIA_SMI.with_suffix(".rs"), *NVIDIA_SMI.glob("*.rs")]}
    texts["fields"] += FIELDS_OF_NVIDIA_SMI.read_text()
    lists = re.findall(r"(?:number|field)\(\s*&\[([^\]]*)\]|(?:IDENTITY|EVERYWHERE): [^=]*=\s*&\[([^\]]*)\]", texts["fields"])
    quoted = lambda text: re.findall(r'"([^"]*)"', text)
    of = {"fields": [name for found in lists for name in quoted("".join(found))]}
    of["APPS"] = quoted(re.search(r"APPS: [^=]*=\s*&\[([^\]]*)\]", texts["processes"]).group(1))
    check("the dialect has its fields", len(of["fields"]) > 100 and "encoder.stats.sessionCount" in of["fields"], of)
    calls = []
    for text in texts.values():
        queries = re.findall(r'let query = format!\("([^"{]*)\{\}", (\w+)\.join', text)
        for call in re.findall(r"\.run\(&\[([^\]]*)\]", text):
            begin = [option + ",".join(of[names]) for option, names in queries] if "&query" in call else []
            calls.append(" ".join(begin + quoted(call)))
    equal("calls of the dialect", len(calls), 4)
    return calls


def refused():
    """Values that must not pass."""
    for values in [
        {"agnet": {"enabled": True}},
        {"agent": {"nvidia": {"priviledged": True}}},
        {"agent": {"resources": {"request": {}}}},
        {"image": {"digest": "sha256:short"}},
        {"agent": {"image": {"digest": "sha256:short"}}},
        {"agent": {"image": {"digest": AGENT_DIGEST}}},
        {"collector": {"replicas": 0}},
        {"kubernetes": {"own": {"enable": True}}},
        {"monitoring": {"podMonitor": "yes"}},
        {"queue": {"url": "nats.example.org"}},
        {"broker": {"enabled": False}},
        {"queue": {"url": "nats://q:4222"}},
        {"collector": {"enabled": False}},
        {"gateway": {"replicas": 2}, "kubernetes": {"own": {"enabled": True}}},
        {"gateway": {"replicas": 1, "autoscaling": {"enabled": True}}, "kubernetes": {"own": {"enabled": True}}},
        {"gateway": {"replicas": 2}, "kubernetes": {"clusters": [{"name": "a", "api_url": "https://b"}]}},
        {"gateway": {"replicas": 1}, "kubernetes": {"clusters": [{"name": "a", "api_url": "https://b", "token": "c"}]}},
        {"gateway": {"enabled": False}, "kubernetes": {"own": {"enabled": True}}},
        {"collector": {"config": {"remote_write": {"url": "http://a/write"}}}},
        {"collector": {"config": {"otlp": {"endpoint": "http://a:4318"}}}},
        {"gateway": {"replicas": 1}, "agent": {"flight": {"jobs": True}}},
        {"gateway": {"replicas": 2}, "agent": {"flight": {"jobs": True, "hostPath": "/a"}}},
    ]:
        try:
            render(values)
            check(f"refused: {values}", False)
        except helm_python.HelmError as error:
            names_it = any(key in str(error) for key in re.findall(r"\w+", json.dumps(values)))
            check(f"refused: {values}", names_it, str(error))
    # One collector sends no figure twice, and of several each has traces of its own.
    render({"collector": {"replicas": 1, "config": {"remote_write": {"url": "http://a/write"}}}})
    render({"collector": {"config": {"otlp": {"endpoint": "http://a:4318", "metrics": False}}}})
    check("an instance in another namespace has names of its own", "prod-gpuvitals-broker" in named(objects(render({}, release="prod")), "Service"))


def tokens():
    """The tokens made at install are those that the services know, and two installations have different ones."""
    first, second = (named(objects(render({})), "Secret")["gpuvitals-tokens"]["stringData"] for _ in range(2))
    check("tokens are random", first["admin"] != second["admin"])
    equal("keys of the tokens", set(first), TOKENS | {"created"})
    lines = {line.split()[0]: line.split() for line in first["tokens"].splitlines()}
    scopes = {name: words[1] for name, words in lines.items()}
    equal("scopes", scopes, {"admin": "admin", "agent": "publish", "collector": "subscribe,publish", "gateway": "read,publish", "reader": "read"})
    for name, words in lines.items():
        equal(f"hash of {name}", words[2], hashlib.sha256(first[name].encode()).hexdigest())
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(first["tokens"])
        file.flush()
        told = subprocess.run([BINARY, "token", "list", "--json", "--token-file", file.name], capture_output=True, text=True)
        read = json.loads(told.stdout or "{}").get("tokens", [])
        equal("tokens as the binary reads them", {it["name"]: ",".join(it["scopes"]) for it in read}, scopes)
    for path in [PLAIN / "tokens", Path("scripts/test-deploy")]:
        made = re.search(r"for client in (.*); do", path.read_text()).group(1)
        equal(f"tokens of {path}", dict(client.split(":") for client in made.split()), scopes)


def ports():
    """What the policies let through to where something else runs: queues, API servers, names; and what the notes say of clients."""
    source = Path("crates/queue/src/link/url.rs").read_text()
    schemes = re.findall(r'\("([a-z]+://)", Scheme::\w+, \w+, (\d+)\)', source)
    equal("schemes of a queue", len(schemes), 6)
    urls = {scheme + host: int(port) for scheme, port in schemes for host in ["queue.example.org", "nats1", "10.0.0.1/", "[fd00::1]"]}
    urls |= {scheme + host: 7000 for scheme, _ in schemes for host in ["q:7000", "10.0.0.1:7000/", "[fd00::1]:7000"]}
    urls |= {"nats://nats1?replicas=3": 4222, "nats://nats1:4000?replicas=3": 4000}
    for url, port in urls.items():
        found = egress({"broker": {"enabled": False}, "queue": {"url": url}}, "gpuvitals-collector")
        equal(f"ports to {url}", found, [[port]])
    servers = ["https://a", "https://b:8443/", "https://c:6443", "http://127.0.0.1:8001", "https://[fd00::1]:16443", "https://d1"]
    clusters = [{"name": f"c{at}", "api_url": url} for at, url in enumerate(servers)]
    values = {"gateway": {"replicas": 1}, "kubernetes": {"clusters": clusters}}
    equal("ports to API servers", egress(values, "gpuvitals-gateway")[-1], [443, 6443, 8443, 8001, 16443])
    values["kubernetes"]["own"] = {"enabled": True, "settings": {"api_url": "https://own:7443"}}
    check("port to our own API server", 7443 in egress(values, "gpuvitals-gateway")[-1])
    equal("ports of agents", egress({}, "gpuvitals-agent-nvidia"), [[9090], [443, 6443]])
    equal("ports of agents without labels of nodes", egress({"agent": {"nodeLabels": False}}, "gpuvitals-agent-nvidia"), [[9090]])
    equal("ports to names", egress({}, "gpuvitals-dns"), [[53, 53, 5353, 5353]])
    for kind, warns in [("ClusterIP", False), ("NodePort", True), ("LoadBalancer", True)]:
        notes = render({"gateway": {"service": {"type": kind}}}, ending=".txt")["NOTES"]
        equal(f"notes on clients of a {kind}", "gatewayClients drops" in notes, warns)


def egress(values, policy):
    """The ports of each rule for what leaves the pods of a policy."""
    rules = named(objects(render(values)), "NetworkPolicy")[policy]["spec"]["egress"]
    return [[it["port"] for it in rule["ports"]] for rule in rules]


def image():
    """What the Dockerfile copies is there and passes .dockerignore, and what it builds from outside crates/ is copied."""
    lines = [line for line in Path(".dockerignore").read_text().splitlines() if line and not line.startswith("#")]

    def passes(path):
        is_in = True
        for line in lines:
            pattern = line.removeprefix("!")
            if any(it.match("/" + pattern) for it in map(Path, [f"/{path}", *(f"/{it}" for it in Path(path).parents)])):
                is_in = line.startswith("!")
        return is_in

    check(".dockerignore keeps builds out", not passes("target/release/gpuvitals") and not passes("dashboard/node_modules/a"))
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    # What the stages have of the repository, in the places that it has there, as the program is built.
    built = []
    for stage in re.split(r"^FROM ", text, flags=re.M)[1:]:
        for line in re.findall(r"^COPY (.*)$", stage, flags=re.M):
            words = [word for word in line.split() if not word.startswith("--")]
            sources = [] if "--from=" in line else words[:-1]
            for path in sources:
                check(f"{DOCKERFILE}: {path} is there", Path(path).exists())
                check(f".dockerignore lets {path} through", passes(path))
            if re.match(r".* AS (sources|build)\n", stage):
                built += sources or words[-1:]
    needed = {"Cargo.toml", "Cargo.lock", "LICENSE"} | set(re.findall(r"\bscripts/[\w.-]+", " ".join(re.findall(r"^RUN (.*)$", text, flags=re.M))))
    root = Path.cwd()
    for path in [*Path("crates").glob("*/src/**/*.rs"), *Path("crates").glob("*/build.rs")]:
        # What a source includes it names from its own folder, what a build script reads from that of its crate.
        includes = r'"((?:\.\./)+[^"{}]+)"' if path.name == "build.rs" else r'include(?:_str|_bytes)?!\(\s*"([^"]+)"'
        for name in re.findall(includes, path.read_text()):
            needed.add(os.path.relpath(root / path.parent / name, root))
    check("what the crates need", {"api/proto", "dashboard/dist"} <= needed, needed)
    for path in sorted(needed):
        if not path.startswith("crates/"):
            is_copied = any(Path(path).is_relative_to(it) for it in built)
            check(f"{DOCKERFILE} does not copy {path}", is_copied)


def generated_files():
    """Dashboards and rules: none without files, and each file as it is."""
    everything = {"monitoring": {"podMonitor": True, "serviceMonitor": True, "prometheusRule": True}}
    dashboards = lambda parts: [part for part in parts if "grafana_dashboard" in part["metadata"]["labels"]]
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / "gpuvitals"
        shutil.copytree(CHART, chart)
        for old in [*chart.glob("files/dashboards/*.json"), *chart.glob("files/rules/*.yaml")]:
            old.unlink()
        empty = objects(render(everything, chart))
        check("no dashboards, no ConfigMap", not dashboards(empty) and not named(empty, "PrometheusRule"))
        text = json.dumps({"title": "{{gpu}}", "panels": []}, indent=1) + "\n"
        (chart / "files/dashboards/fleet.json").write_text(text)
        (chart / "files/rules/alerts.yaml").write_text("groups:\n  - name: gpus\n    rules:\n      - {alert: A, expr: up == 0}\n")
        full = objects(render(everything, chart))
        found = dashboards(full)
        equal("a dashboard", [part["data"] for part in found], [{"fleet.json": text}])
        equal("its label", [part["metadata"]["labels"]["grafana_dashboard"] for part in found], ["1"])
        rule = named(full, "PrometheusRule")["gpuvitals-alerts"]
        equal("a rule", rule["spec"]["groups"][0]["name"], "gpus")
        valid("rules", rule)
    # The chart asks the cluster whether it knows the operator's kinds; offline it knows none.
    check("auto: no kinds of the operator", not any(part["kind"] in OPERATOR for part in objects(render({}))))


def as_list(parts):
    """Objects as one List, so that all of them share the one line that names the image."""
    lines = ["apiVersion: v1", "kind: List", "items:"]
    for part in parts:
        lines += [(("  - " if at == 0 else "    ") + line).rstrip() for at, line in enumerate(part.splitlines())]
    images = [at for at, line in enumerate(lines) if re.match(r"\s+(- )?image: ", line)]
    for at in images:
        key, image = lines[at].split("image: ")
        lines[at] = f"{key}image: " + (f"&image {image}" if at == images[0] else "*image")
    return "\n".join(lines) + "\n"


def plain(values):
    """deploy/kubernetes is the rendering, without what names Helm, as one List."""
    parts = []
    for _, text in sorted(render(values).items()):
        for part in re.split(r"^---$", text, flags=re.M):
            part = "\n".join(line.rstrip() for line in part.strip().splitlines())
            if part and "helm.sh/hook" not in part and yaml.safe_load(part):
                kept = [line for line in part.splitlines() if "managed-by: Helm" not in line and "helm.sh/chart" not in line]
                parts.append("\n".join(kept))
    head = "# Generated from deploy/helm/gpuvitals and its ci/manifests.yaml by UPDATE=1 scripts/charts. The line with &image names the\n"
    head += "# image of all of them.\n"
    wanted = head + as_list(parts)
    path = PLAIN / "gpuvitals.yaml"
    if os.environ.get("UPDATE"):
        path.write_text(wanted)
    equal("files of deploy/kubernetes", sorted(it.name for it in PLAIN.glob("*.yaml")), ["00-namespace.yaml", path.name])
    check(f"{path} is the rendering: UPDATE=1 scripts/charts", path.read_text() == wanted)
    namespace = yaml.safe_load((PLAIN / "00-namespace.yaml").read_text())
    equal("namespace", namespace["metadata"]["name"], NAMESPACE)
    valid("deploy/kubernetes", namespace)
    items = yaml.safe_load(wanted)["items"]
    equal("objects of the list", items, [yaml.safe_load(part + "\n") for part in parts])
    for part in items:
        valid("deploy/kubernetes", part)
        wanted = None if part["kind"].startswith("ClusterRole") else NAMESPACE
        equal("its namespace", part["metadata"].get("namespace"), wanted)


helm_python.disable_logging()
sets = value_sets()
refused()
tokens()
ports()
image()
generated_files()
plain(sets["manifests"])
# A value set is a test, and so is each of the six others.
tests = len(sets) + 6
print(f"{max(0, tests - failed)} passed, {failed} failed")
sys.exit(failed > 0)
