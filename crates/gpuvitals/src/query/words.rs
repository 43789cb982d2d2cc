//! Refusals of the server in the words of the command line: it says what a client of REST can do.

use std::borrow::Cow;

/// What lists names, there and here.
const LISTS: [(&str, &str); 11] = [
    ("nothing: hosts are asked for with hosts", "nothing: hosts are asked for with --where node=HOST"),
    ("GET /api/v1/gpus", "`gpuvitals query gpus`"),
    ("GET /api/v1/hosts", "`gpuvitals query hosts`"),
    ("GET /api/v1/jobs", "`gpuvitals jobs`"),
    ("GET /api/v1/metrics", "`gpuvitals metrics`"),
    ("GET /api/v1/analysis/findings", "`gpuvitals findings --steps`"),
    ("GET /api/v1/analysis/silences", "`gpuvitals findings --silences`"),
    (
        "GET /api/v1/flight/incidents lists them",
        "findings name those that they caused (`gpuvitals findings --steps`)",
    ),
    ("fewer GPUs or metrics, or another group_by", "fewer metrics, --gpu or another --group-by"),
    ("a larger step", "a longer --step"),
    ("a shorter range", "a shorter --last"),
];
/// Parameters with a flag of another name; none of those without a flag.
const FLAGS: [(&str, Option<&str>); 7] = [
    ("gpus", Some("--gpu")),
    ("hosts", Some("--host")),
    ("start", Some("--last")),
    ("start_time", Some("--last")),
    ("group_by", Some("--group-by")),
    ("metrics", None),
    ("search", None),
];
/// Parameters that are flags.
const SAME: [&str; 16] = [
    "after",
    "aggregate",
    "bottom",
    "by",
    "cluster",
    "end",
    "host",
    "judgement",
    "kind",
    "limit",
    "namespace",
    "severity",
    "sort",
    "step",
    "top",
    "where",
];

/// A refusal, with flags and commands in place of parameters and paths.
pub(super) fn for_people(message: &str) -> String {
    let (parameter, rest) = message.split_once(' ').unwrap_or((message, ""));
    let other = FLAGS.iter().find(|(name, _)| *name == parameter).map(|(_, flag)| *flag);
    let same = || SAME.contains(&parameter).then(|| format!("--{parameter}"));
    let flag = match other {
        Some(flag) => flag.map(str::to_owned),
        None => same(),
    };
    let is_refused = rest.starts_with("is ");
    let flag = flag.filter(|_| is_refused).map_or(Cow::Borrowed(parameter), Cow::Owned);
    let message = format!("{flag} {rest}");
    LISTS.iter().fold(message.trim_end().to_owned(), |text, (there, here)| text.replace(there, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_commands_stand_in_place_of_parameters_and_paths() {
        for (there, here) in [
            (
                "no GPU is known as \"x\"; GET /api/v1/gpus lists them",
                "no GPU is known as \"x\"; `gpuvitals query gpus` lists them",
            ),
            (
                "no host is known as \"x\"; GET /api/v1/hosts lists them",
                "no host is known as \"x\"; `gpuvitals query hosts` lists them",
            ),
            ("group_by is \"x\"; allowed is gpu", "--group-by is \"x\"; allowed is gpu"),
            ("limit is \"0\"; allowed is 1 to 10000", "--limit is \"0\"; allowed is 1 to 10000"),
            (
                "metrics is \"x\"; allowed is a metric of GPUs, see GET /api/v1/metrics",
                "metrics is \"x\"; allowed is a metric of GPUs, see `gpuvitals metrics`",
            ),
            (
                "9 steps × 9 series are more than 8 values; take a larger step, a shorter range, fewer GPUs or metrics, or another group_by",
                "9 steps × 9 series are more than 8 values; take a longer --step, a shorter --last, fewer metrics, --gpu or another --group-by",
            ),
            (
                "no GPU was held by \"7\" in this range; GET /api/v1/jobs lists who held one",
                "no GPU was held by \"7\" in this range; `gpuvitals jobs` lists who held one",
            ),
            (
                "nothing is silenced as \"host=x\"; GET /api/v1/analysis/silences lists what is",
                "nothing is silenced as \"host=x\"; `gpuvitals findings --silences` lists what is",
            ),
            (
                "\"x\" is no incident of a job that is kept here; GET /api/v1/flight/incidents lists them",
                "\"x\" is no incident of a job that is kept here; findings name those that they caused (`gpuvitals findings --steps`)",
            ),
            ("cluster is missing; give one", "--cluster is missing; give one"),
            ("end is before start", "--end is before start"),
            ("unauthorized", "unauthorized"),
        ] {
            assert_eq!(for_people(there), here);
        }
    }
}
