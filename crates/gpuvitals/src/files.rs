//! Section `files` of the configuration: what the user says about CSV files, alike for `up`, `stream`, `store import` and
//! `inspect`.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use gpuvitals_core::time::Zone;
use gpuvitals_inputs::csv::{ColumnHint, Hints};
use gpuvitals_settings::{Refusal, Texts, settings};

use crate::failure::{Exit, Failure};

settings! {
    /// What you say about CSV files that are replayed, imported or inspected; it goes before what they say
    pub(crate) struct Files = "files", check Self::check {
        /// What a column is, such as "Board Power=power_w:mW"; may be given several times. METRIC is a column or alias of
        /// `gpuvitals metrics`, or time (time:dmy with the day first, time:mdy with the month first), gpu, host, or own to
        /// keep it under its own name
        pub columns: Texts = [], flag "--column NAME=METRIC[:UNIT]";
        /// Host of all rows; without it a column's, and for GPUs that mean nothing without a host the file's name
        pub host: String = "", flag "--host HOST";
        /// The GPU of a file without a column for it; without it its model, else index 0
        pub gpu: String = "", flag "--gpu NAME";
        /// Zone of times without one, such as Europe/Berlin or +09:00; without it this machine's
        pub timezone: String = "", flag "--timezone ZONE";
    }
}

impl Files {
    fn check(&self) -> Result<(), Refusal> {
        self.read().map(drop)
    }

    /// The settings as a reader of files takes them.
    ///
    /// # Errors
    /// When a column's meaning or the zone is none, though settings were checked before.
    pub(crate) fn hints(&self) -> Result<Hints, Failure> {
        let failed =
            |refusal: Refusal| Failure::new(Exit::Config, format!("{}: {}", refusal.setting, refusal.why));
        self.read().map_err(failed)
    }

    fn read(&self) -> Result<Hints, Refusal> {
        let column = |text: &String| text.parse::<ColumnHint>();
        let columns = self.columns.0.iter().map(column).collect::<Result<_, _>>();
        let timezone =
            Some(self.timezone.trim()).filter(|name| !name.is_empty()).map(Zone::named).transpose();
        let given = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Ok(Hints {
            columns: columns.map_err(|error| Refusal::new("files.columns", error.to_string()))?,
            host: given(&self.host),
            usual_host: None,
            gpu: given(&self.gpu),
            of_several: false,
            timezone: timezone.map_err(|error| Refusal::new("files.timezone", error.to_string()))?,
        })
    }
}

/// Why a command that reads files to their end does not read this one, and a source says that it waits: a pipe by its own name, which may
/// never get a writer.
/// One of a shell (`<(zcat rows.csv.gz)`) has none.
pub(crate) fn is_endless(path: &Path) -> Option<&'static str> {
    let is_pipe = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_fifo());
    (is_pipe && path.canonicalize().is_ok())
        .then_some("it is a named pipe, which waits until somebody writes into it; - reads standard input")
}
