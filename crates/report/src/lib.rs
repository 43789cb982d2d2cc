//! The report of a run, from its recordings: what ran where, what each GPU did over time, what it took.
//!
//! [`RunReport::read`] goes through the rows once, in bounded memory. The result is a page that needs nothing else
//! ([`RunReport::html`]), Markdown for a pull request, or JSON.
//!
//! ```no_run
//! use gpuvitals_report::RunReport;
//!
//! let report = RunReport::read(&["telemetry".into()])?;
//! std::fs::write("run.html", report.html())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod axis;
mod chart;
mod curve;
mod curves;
mod figures;
mod held;
mod markdown;
mod page;
mod panels;
mod run;
mod sentences;
mod step_chart;
mod steps;
mod tables;
mod words;

pub use figures::{HeldShares, PhaseFigures, RunGpu, RunLast, RunMark, RunRecording, StepFigures};
pub use markdown::MarkdownText;
pub use run::RunReport;
