//! Of when what was used is asked for.

use clap::Args;
use gpuvitals_core::{clock, time};

use crate::failure::{Exit, Failure};
use crate::percent::escaped;
use crate::query;

/// Of when an answer is.
#[derive(Debug, Args)]
pub(crate) struct RangeFlags {
    /// How far back from the end: 6h, 7d
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub last: String,
    /// End (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
}

/// The range as parameters of a path.
///
/// # Errors
/// If one of its ends is none.
pub(super) fn range(asked: &RangeFlags) -> Result<String, Failure> {
    let end_ns = match &asked.end {
        Some(text) => time::parse(text).map_err(|e| Failure::new(Exit::Usage, format!("--end: {e}")))?,
        None => clock::now_ns(),
    };
    let start = query::before(end_ns, &asked.last)?;
    Ok(format!("start={start}&end={}", escaped(&time::format(end_ns))))
}
