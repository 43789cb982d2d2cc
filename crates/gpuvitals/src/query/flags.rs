//! The flags of `gpuvitals query` name a server and a question.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use gpuvitals_analysis::judgement::GpuJudgement;
use gpuvitals_core::{Table, time};

use crate::failure::{Exit, Failure};
use crate::percent::escaped;

/// A running gpuvitals to ask. Its flags stand behind those of the question.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// Print JSON as the server gave it
    #[arg(long, global = true, display_order = 100)]
    pub json: bool,
    /// Server to ask
    #[arg(
        long,
        env = "GPUVITALS_URL",
        default_value = "http://127.0.0.1:8081",
        value_name = "URL",
        global = true,
        display_order = 101
    )]
    pub url: String,
    /// File with the token that the server asks for, mode 0600
    #[arg(long, env = "GPUVITALS_TOKEN_FILE", value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// Authorities that sign the server's certificate (PEM), instead of the system's
    #[arg(long, env = "GPUVITALS_CA", value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
}

/// Of when an answer is.
#[derive(Debug, Args)]
pub(crate) struct When {
    /// As of this instant, by the history up to it [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl When {
    /// Whether no instant is given.
    pub(crate) fn is_now(&self) -> bool {
        self.at.is_none()
    }

    /// The parameter of a question that has others, if an instant is given.
    ///
    /// # Errors
    /// If it is no time.
    pub(crate) fn parameter(&self) -> Result<String, Failure> {
        let Some(text) = &self.at else { return Ok(String::new()) };
        let at_ns = time::parse(text).map_err(|e| Failure::new(Exit::Usage, format!("--at: {e}")))?;
        Ok(format!("&at={}", escaped(&time::format(at_ns))))
    }
}

fn words_of_judgement() -> PossibleValuesParser {
    PossibleValuesParser::new(GpuJudgement::ALL.map(GpuJudgement::name))
}

/// `gpuvitals query`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gpuvitals query gpus --judgement critical,lost
  gpuvitals query gpus --sort=-power_w --limit 10
  gpuvitals query gpu host-7:gpu3
  gpuvitals query gpus --judgement critical,lost --at 2026-11-20T03:10:00Z
  gpuvitals query range power_w,utilization_pct --last 6h --step 5m --group-by node
  gpuvitals query range energy_mj --aggregate rate --group-by namespace,job --where 'job!=' --top 10
  gpuvitals query range cpu_pct --table system_events
  gpuvitals query rows gpu_health_events --last 1d
  gpuvitals query health --url http://10.0.0.5:8081")]
pub(crate) struct Query {
    /// The server.
    #[command(flatten)]
    pub server: Server,
    /// What to ask
    #[command(subcommand)]
    pub what: QueryWhat,
}

/// What `query` can ask.
#[derive(Debug, Subcommand)]
pub(crate) enum QueryWhat {
    /// All GPUs, how each does, and their latest values
    Gpus {
        /// Only the GPU of this name, or those with all of these words in name, id, model, host, pod, namespace or job
        search: Option<String>,
        /// Only GPUs of these judgements: the worst finding, or else the state
        #[arg(long, alias = "state", value_name = "WORD", value_delimiter = ',', value_parser = words_of_judgement())]
        judgement: Vec<String>,
        /// Order by a field (hostname, judgement, last_seen, model …) or a metric, the largest first with - before it: -power_w
        /// [default: by host and index]
        #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
        sort: Option<String>,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
        /// Of when
        #[command(flatten)]
        when: When,
    },
    /// All hosts, and how each does
    Hosts {
        /// Only hosts of these judgements: that of its GPU that needs somebody most
        #[arg(long, value_name = "WORD", value_delimiter = ',', value_parser = words_of_judgement())]
        judgement: Vec<String>,
        /// Of when
        #[command(flatten)]
        when: When,
    },
    /// One GPU: identity and the latest value of every metric
    Gpu {
        /// Name (node-1 / GPU 6), UUID, PCI address, or host:gpuN
        id: String,
        /// Of when
        #[command(flatten)]
        when: When,
    },
    /// History of one or more metrics
    Range {
        /// Metrics by column name, e.g. power_w,utilization_pct
        #[arg(required = true, value_delimiter = ',')]
        metrics: Vec<String>,
        /// Table of the metrics; system_events has those of hosts
        #[arg(long, value_name = "TABLE", default_value = "gpu_events", value_parser = ["gpu_events", "system_events"])]
        table: String,
        /// This GPU only: name (node-1 / GPU 6), UUID, PCI address, or host:gpuN; may be given several times [default: all]
        #[arg(long, value_name = "GPU", value_delimiter = ',')]
        gpu: Vec<String>,
        /// How far back from the end: 15m, 1h, 7d
        #[arg(long, value_name = "DURATION", default_value = "1h")]
        last: String,
        /// End (RFC 3339) [default: now]
        #[arg(long, value_name = "TIME")]
        end: Option<String>,
        /// Length of a step: 10s, 1m
        #[arg(long, value_name = "DURATION", default_value = "1m")]
        step: String,
        /// Aggregates of each step: mean, min, max, p50, p90, p99, last, count, rate, increase, delta
        #[arg(long, value_name = "WHAT", default_value = "mean", value_delimiter = ',')]
        aggregate: Vec<String>,
        /// A series for each value of these columns: gpu, node, model, pod, job …; or all for one [default: gpu, of
        /// system_events node]
        #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
        group_by: Vec<String>,
        /// Only rows whose identity passes this test: job=7, node!=a,b, pod=~train-.*, model!~.*MI300X; may be given several
        /// times
        #[arg(long = "where", value_name = "TEST")]
        tests: Vec<String>,
        /// Only so many series, those with the largest mean
        #[arg(long, value_name = "N", conflicts_with = "bottom")]
        top: Option<usize>,
        /// Only so many series, those with the smallest mean
        #[arg(long, value_name = "N")]
        bottom: Option<usize>,
        /// At most this many rows; --json has all
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: usize,
    },
    /// The newest rows of a table as they were stored: samples, events, processes, single links
    Rows {
        /// Table
        #[arg(default_value = "gpu_events", value_parser = PossibleValuesParser::new(Table::ALL.map(Table::name)))]
        table: String,
        /// This GPU only (of system_events: this host); may be given several times [default: all]
        #[arg(long, value_name = "GPU", value_delimiter = ',')]
        gpu: Vec<String>,
        /// These columns only [default: all]
        #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
        metrics: Vec<String>,
        /// Only events of these kinds, such as finding_opened,xid (of gpu_health_events) [default: all]
        #[arg(long, value_name = "KIND", value_delimiter = ',')]
        kind: Vec<String>,
        /// Only rows whose identity passes this test: job=7, node!=a,b, pod=~train-.*; may be given several times
        #[arg(long = "where", value_name = "TEST")]
        tests: Vec<String>,
        /// Not older than this: 15m, 1h, 7d [default: any age]
        #[arg(long, value_name = "DURATION")]
        last: Option<String>,
        /// Only what comes behind this place: `next` of the answer before (see --json)
        #[arg(long, value_name = "CURSOR")]
        after: Option<String>,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Health of gateway, collector, queue and store; exits with 69 unless all are healthy
    Health {
        /// Exit with 69 only if a part is unhealthy: degraded passes, as at /readyz; for the health checks of containers
        #[arg(long)]
        ready: bool,
    },
}
