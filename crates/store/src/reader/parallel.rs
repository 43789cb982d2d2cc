//! The same work for many things, by all cores.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Most threads one query takes.
const THREADS_MAX: usize = 8;

/// Does the work for every item and gives the results in the order of the items. With `wide`, threads share it.
pub(crate) fn parallel<T: Sync, R: Send>(
    items: &[T],
    wide: bool,
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if wide && items.len() > 1 { cores().min(THREADS_MAX).min(items.len()) } else { 1 };
    if threads == 1 {
        return items.iter().enumerate().map(|(index, item)| work(index, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let turn = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(index, item)));
        }
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(turn)).collect();
        let mut done = turn();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
