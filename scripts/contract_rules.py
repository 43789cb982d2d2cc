"""What the documents say in words, since no schema can: which requests of the right shape are refused too."""

import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

RULES = (
    "end is before start",
    "a metric of GPUs",  # a name that the catalogue does not have
    "a metric of hosts",  # the same in another table
    "a column of ",  # the same in a table without metrics
    "hosts are asked for with hosts",
    "node or all",  # hosts have no GPU and no model
    "or a metric's column",  # the same for an order
    "names of columns of values",  # a column that says whose a row is
    "tests between semicolons",  # a test of no identity column
    "a regular expression of the crate",
    "at most 32 tests",
    "top or bottom, not both",
    "allowed is fleet_silent",  # a kind that no finding has
    "at most 24 hours before the end",
    "the id of an open finding",  # an empty one
    "at least 1ms",  # a step of nothing, or of more than 31 years
    "the id of a dead letter",  # a number above the largest
    "a whole number from 0 on",  # the same
    "invalid type: floating point",  # the same in a body
    "either ids or oldest",
    "come together",  # a producer without a sequence
    "no whole number from 0 to 18446744073709551615",  # the sequence is larger
    "with a key of the setting jobs.labels",  # a label that no setting names
    "give one of finding, host and job",  # none or several of them
    "until is missing",  # a silence of a host or job without an end
    ", in 30 days",  # an end that is past or far away
    "the body: until: ",  # an end that is no instant
)
# The same by their code: the message says more than can be listed.
CODES = ("too_large", "bad_messages", "bad_topic")


TESTS = ("vendor=nvidia", "pod!=a,b", "node=~sim-.*", "job!~[0-9]+", "model=", "uuid=~(", "rack=7")
METRICS = ("power_w", "utilization_pct", "temperature_c", "memory_used_mb", "throttle_reasons", "xid_last")


@schemathesis.hook
def before_call(context, case, **kwargs):
    """Asks for metrics that there are, and rows by tests: of random texts nearly none is one, and values would never be looked at."""
    if not case.meta or not case.meta.generation.mode.is_positive:
        return
    for name, known, joint in (("metrics", METRICS, ","), ("where", TESTS, ";")):
        text = (case.query or {}).get(name)
        if isinstance(text, str) and len(text) % 4:
            case.query[name] = joint.join(known[ord(letter) % len(known)] for letter in text[:3])


@schemathesis.check
def allowed_requests_are_accepted(ctx, response, case):
    """Every request that the document allows has an answer."""
    body = response.json() if response.status_code in (400, 422) else {}
    if case.path.startswith("/api/v1/prom/") and body.get("errorType") in ("bad_data", "execution"):
        # A random text is no PromQL.
        return None
    if response.status_code == 400:
        if body["code"] in CODES or any(rule in body["message"] for rule in RULES):
            return None
    return positive_data_acceptance(ctx, response, case)
