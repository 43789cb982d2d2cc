//! Recordings of a machine: sampled at full rate into Parquet files; at most a second is lost when the recorder is killed.
//!
//! While a [`Recorder`] runs, every batch is appended to a journal at most half a second after it was sampled; every ten seconds
//! the journals become Parquet files that anybody may read, and these one file a table at the end. [`repair`] does the same for
//! a recording whose process was killed: at most its last second is missing. The Parquet files are synced, so a power cut loses
//! ten seconds.
//!
//! ```
//! use gpuvitals_record::{Recorder, RecorderConfig};
//! use gpuvitals_sources::machine::Machine;
//!
//! # let place = tempfile::tempdir()?;
//! # let directory = place.path().join("telemetry");
//! let config = RecorderConfig::new(&directory, Machine::local("node1"));
//! let recorder = Recorder::start(config)?;
//! recorder.mark("epoch 1")?;
//! // … what is to be measured …
//! let recorded = recorder.stop()?;
//! println!("{} rows of GPUs, {} of the host", recorded.gpu_rows, recorded.system_rows);
//! for batch in recorded.data()? {
//!     let batch = batch?;
//!     println!("{:?}: {} rows", batch.table(), batch.rows());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod about;
mod checksums;
mod compare;
mod data;
mod directory;
mod error;
mod gpu_rows;
mod journal;
mod layout;
mod mark;
mod marks;
mod part;
mod perfetto;
mod phases;
mod recorder;
mod run_facts;
mod socket;
mod steps;
mod summary;
mod table_file;
mod worked;
mod writer;

pub use about::{RecordingFacts, marks_of, recorded_marks, refuse_twice};
pub use compare::{
    ChangeCause, ChangeVerdict, CompareError, ComparedRun, GateError, GateOutcome, MetricChange, MetricGate,
    RUNS_MAX, RunComparison, RunDifference, RunMetric, RunOutline, RunSource, UnlikeRuns, compare,
};
pub use data::{Data, verify_recording};
pub use error::RecordError;
pub use mark::{MARK_LEN_MAX, MarkContent};
pub use marks::{MARKS_MAX, RecordedMark, RecordedMarks};
pub use perfetto::{PerfettoError, PerfettoTotals, write_perfetto};
pub use recorder::{Progress, Recorded, Recorder, RecorderConfig, RepairedRecording, repair};
pub use run_facts::{Arguments, RunFacts};
pub use socket::{MARK_SOCKET_VARIABLE, MarkSocket, send_mark};
pub use steps::{RunSteps, StepOrigin};
pub use summary::{RecordSummary, RecordedGpu, kept_share};
pub use table_file::{OpenTableFile, SeenColumns, TableFile, TableFileError};
pub use worked::worked_s;
