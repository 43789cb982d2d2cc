"""kubectl and the official Python client against the double of a Kubernetes API server: what our own client must not be alone to believe.

Usage: cluster-double.py URL CA-FILE TOKEN KUBECTL
"""

import json
import subprocess
import sys

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

url, authority, token, kubectl_path = sys.argv[1:]


def api(token):
    configuration = client.Configuration(host=url)
    configuration.ssl_ca_cert = authority
    configuration.api_key = {"authorization": f"Bearer {token}"}
    return client.CoreV1Api(client.ApiClient(configuration))


core = api(token)
passed = failed = 0


def test(check):
    """Runs a check and counts it."""
    global passed, failed
    try:
        check()
        passed += 1
    except Exception as error:  # Whatever it is, the others go on.
        failed += 1
        print(f"{check.__name__}: {error!r}")


def run(pod, *command, container="nvidia-driver-ctr"):
    answer = stream(
        core.connect_get_namespaced_pod_exec, pod, "gpu-operator", container=container, command=list(command),
        stdout=True, stderr=True, stdin=False, tty=False, _preload_content=False,
    )
    answer.run_forever(timeout=30)
    return answer.read_stdout(), answer.read_stderr(), answer.returncode


@test
def it_has_a_version():
    assert client.VersionApi(core.api_client).get_code().major == "1"


@test
def nodes_come_in_pages():
    # The client passes on `continue` as it came.
    names, page = [], core.list_node(limit=2)
    while True:
        names += [node.metadata.name for node in page.items]
        if not page.metadata._continue:
            break
        page = core.list_node(limit=2, _continue=page.metadata._continue)
    assert len(names) == 5 and len(set(names)) == 5, names
    assert core.list_node().items[0].status.capacity["nvidia.com/gpu"] == "8"


@test
def pods_are_selected_by_label_and_field():
    pods = core.list_namespaced_pod("gpu-operator", label_selector="app=nvidia-driver-daemonset")
    assert len(pods.items) == 5, len(pods.items)
    one = core.list_namespaced_pod("gpu-operator", label_selector="app=nvidia-driver-daemonset", field_selector="spec.nodeName=node-1")
    assert [pod.metadata.name for pod in one.items] == ["driver-node-1"]


@test
def exec_has_both_streams_and_the_exit_code():
    out, err, code = run("driver-node-1", "nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,nounits")
    lines = out.splitlines()
    assert lines[0] == "index, uuid, name" and lines[8] == "7, GPU-node-1-0007, NVIDIA H200", lines
    assert "a warning of the driver" in err and code == 0, (err, code)
    out, _, code = run("driver-node-1", "nvidia-smi", "--query-gpu=nonsense", "--format=csv")
    assert "not a valid field" in out and code == 2, (out, code)
    out, _, code = run("driver-node-1", "nvidia-smi", "pmon", "-c", "1", "-s", "um")
    assert "gpu_burn" in out and code == 0, (out, code)


@test
def refusals_have_their_status():
    for what, status in [
        (lambda: api("wrong").list_node(), 401),
        (lambda: run("driver-nobody", "nvidia-smi"), 404),
        (lambda: run("driver-node-1", "nvidia-smi", container=""), 400),
    ]:
        try:
            what()
        except ApiException as error:
            # The WebSocket part of the client reports a refused handshake as 0 with the status in its text.
            assert error.status == status or str(status) in str(error), error
        else:
            raise AssertionError(f"no {status}")


def kubectl(*arguments, token=token):
    """Standard output, standard error and exit code; without the user's settings or cache."""
    command = [kubectl_path, "--kubeconfig=/dev/null", "--cache-dir=/nonexistent", f"--server={url}", f"--certificate-authority={authority}"]
    done = subprocess.run([*command, f"--token={token}", *arguments], capture_output=True, text=True, timeout=60)
    return done.stdout, done.stderr, done.returncode


def nvidia_smi(pod, *arguments, container="nvidia-driver-ctr"):
    return kubectl("exec", "--namespace=gpu-operator", pod, f"--container={container}", "--", "nvidia-smi", *arguments)


@test
def kubectl_lists_in_pages_and_by_selector():
    out, err, code = kubectl("get", "nodes", "--chunk-size=2", "--output=json")
    assert code == 0 and len(json.loads(out)["items"]) == 5, (out, err)
    out, err, code = kubectl(
        "get", "pods", "--namespace=gpu-operator", "--selector=app=nvidia-driver-daemonset", "--field-selector=spec.nodeName=node-1", "--output=name"
    )
    assert (out, code) == ("pod/driver-node-1\n", 0), (out, err)


@test
def kubectl_exec_has_both_streams_and_the_exit_code():
    out, err, code = nvidia_smi("driver-node-1", "--query-gpu=index,uuid,name", "--format=csv,nounits")
    assert out.splitlines()[8] == "7, GPU-node-1-0007, NVIDIA H200" and "a warning of the driver" in err and code == 0, (out, err, code)
    out, err, code = nvidia_smi("driver-node-1", "--query-gpu=nonsense", "--format=csv")
    assert "not a valid field" in out and code == 2, (out, err, code)


@test
def kubectl_is_refused_as_by_a_server():
    for refused, why in [
        (kubectl("get", "nodes", token="wrong"), "must be logged in"),
        (nvidia_smi("driver-nobody"), "NotFound"),
        (nvidia_smi("driver-node-1", container="nobody"), "container"),
    ]:
        assert refused[2] == 1 and why in refused[1], refused


print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
