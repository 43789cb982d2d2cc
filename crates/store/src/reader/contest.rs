//! Overlaps of parts, in which a row may have a twin in another part.

use super::part::Part;

/// Per part the times, ascending and apart, in which its rows may have twins: same GPU, same time, in another part.
/// All other rows are the only ones of their key.
pub(crate) fn contested(parts: &[Part]) -> Vec<Vec<(i64, i64)>> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let times = |at: usize| parts.get(at).map_or((0, 0), Part::times);
    order.sort_unstable_by_key(|&at| times(at).0);
    let mut found: Vec<Vec<(i64, i64)>> = vec![Vec::new(); parts.len()];
    let mut active: Vec<usize> = Vec::new();
    for at in order {
        let Some(part) = parts.get(at) else { continue };
        let (min_ns, max_ns) = part.times();
        active.retain(|&other| times(other).1 >= min_ns);
        for &other in &active {
            if let Some(rival) = parts.get(other).filter(|rival| part.may_share_keys(rival)) {
                let shared = (min_ns, max_ns.min(rival.times().1));
                for side in [at, other] {
                    found.get_mut(side).into_iter().for_each(|times| times.push(shared));
                }
            }
        }
        active.push(at);
    }
    found.into_iter().map(joined).collect()
}

/// Times, ascending and apart.
pub(crate) fn joined(mut times: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    times.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::with_capacity(times.len());
    for (from, to) in times {
        match joined.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}
