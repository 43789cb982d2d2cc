//! How many GPUs a job asked for, as Slurm writes it.

/// What Slurm says of a job when it is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SlurmWord {
    /// How it ended; none: it goes on.
    pub outcome: Option<&'static str>,
    /// How many GPUs it asked for on all hosts; none: it did not ask by host, or for none.
    pub gpus_asked: Option<i64>,
}

/// What a generic resource begins with in Slurm's lists: `gres:gpu:2`, or `gres/gpu:2` of later versions.
const RESOURCE: &str = "gres";
/// The resource that GPUs are.
const GPU: &str = "gpu";

/// Of a list of what is asked for on each host: `gres:gpu:h100:2,gres:nvme:1`. None: no GPU is in it.
pub(super) fn in_resources(list: &str) -> Option<i64> {
    let gpus = list.split(',').filter_map(|one| {
        let one = one.strip_prefix(RESOURCE).map_or(one, |rest| rest.trim_start_matches([':', '/']));
        let rest = one.strip_prefix(GPU)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix([':', '=']) }
    });
    gpus.map(one).reduce(|sum, gpus| sum?.checked_add(gpus?))?
}

/// Of a list of counts, each with or without the type of the GPUs: `2`, `h100:2,a100:1`.
pub(super) fn in_counts(list: &str) -> Option<i64> {
    list.split(',').map(one).reduce(|sum, gpus| sum?.checked_add(gpus?))?
}

/// The count that stands last; without one it is 1, as Slurm takes it. None: it has a unit, or is too large.
fn one(text: &str) -> Option<i64> {
    let last = text.rsplit([':', '=']).next().unwrap_or(text);
    if last.starts_with(|first: char| first.is_ascii_digit()) {
        last.parse::<u32>().ok().map(i64::from)
    } else {
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted_among_all_that_is_asked_for_on_a_host() {
        for (list, gpus) in [
            ("gres:gpu:2", Some(2)),
            ("gres/gpu:2", Some(2)),
            ("gres/gpu=4", Some(4)),
            ("gpu:h100:8", Some(8)),
            ("gres/gpu:h100=8", Some(8)),
            ("gres:gpu", Some(1)),
            ("gres:gpu:h100", Some(1)),
            ("gres:nvme:1,gres:gpu:h100:2,gres:gpu:a100:1", Some(3)),
            ("gres:gpu:0", Some(0)),
            ("N/A", None),
            ("(null)", None),
            ("gres:gpumem:20", None),
            ("gres:shard:4", None),
            ("gres:gpu:99999999999", None),
            ("gres:gpu:4K", None),
            ("", None),
        ] {
            assert_eq!(in_resources(list), gpus, "{list}");
        }
    }

    #[test]
    fn counts_have_a_type_or_none() {
        for (list, gpus) in
            [("2", Some(2)), ("h100:2", Some(2)), ("h100:2,a100:1", Some(3)), ("h100", Some(1)), ("2x", None)]
        {
            assert_eq!(in_counts(list), gpus, "{list}");
        }
    }
}
