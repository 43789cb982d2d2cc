//! Which job or pod is asked for, and of when.

use clap::Args;

use super::range::{RangeFlags, range};
use crate::failure::Failure;
use crate::percent::escaped;

/// `gpuvitals jobs show`
#[derive(Debug, Args)]
pub(crate) struct ShowFlags {
    /// Holder as the list names it, or the id of a batch job, or its place in an array (4719_1)
    pub id: String,
    /// Of when
    #[command(flatten)]
    pub range: RangeFlags,
    /// The cluster, where several have a job or pod of this name
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
}

/// The path of the question.
///
/// # Errors
/// If an end of the range is none.
pub(super) fn show_path(asked: &ShowFlags) -> Result<String, Failure> {
    let cluster = asked.cluster.as_ref().map_or(String::new(), |name| format!("&cluster={}", escaped(name)));
    Ok(format!("/api/v1/jobs/{}?{}{cluster}", escaped(&asked.id), range(&asked.range)?))
}
