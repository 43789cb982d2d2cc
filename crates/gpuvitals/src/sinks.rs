//! Where collected rows go: the sinks that the configuration names, as one.
//!
//! A further sink is a word of `collector.sinks` and an arm of [`open`]; if it has settings, its section is a line of the
//! configuration too.

pub(crate) mod lines;

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use futures_util::future::join_all;
use gpuvitals_collect::{CollectorSettings, MemoryHistory, SinkKind};
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{FleetBounds, History};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::{Batch, Health, Table, causes};
use gpuvitals_postgres::{Database, Postgres};
use gpuvitals_store::{Store, StoreConfig, StoreError};

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::store;

/// The end that takes rows, and the end that is asked for them.
pub(crate) type Ends = (Arc<dyn Sink>, Arc<dyn History>);

/// How the store is opened if nobody queries the newest rows of a GPU alone.
pub(crate) fn store_config(settings: &store::Store, collector: &CollectorSettings) -> StoreConfig {
    StoreConfig {
        flush_age: settings.flush_age,
        flush_rows: settings.flush_rows,
        flush_bytes: settings.flush_bytes.as_usize(),
        keep: kept(settings.keep),
        keep_rollups: [settings.keep_10s, settings.keep_1m, settings.keep_1h, settings.keep_1d].map(kept),
        max_bytes: Some(settings.max_bytes.0).filter(|max_bytes| *max_bytes > 0),
        fleet: collector.fleet_bounds(),
        checkpoint: collector.checkpoint,
        ..StoreConfig::new(&settings.dir)
    }
}

/// How long rows are kept; 0: for ever.
fn kept(keep: Duration) -> Option<Duration> {
    Some(keep).filter(|keep| !keep.is_zero())
}

/// Opens the sinks, each of which has accepted a row before it is acknowledged. The store answers for the rows; without it
/// PostgreSQL, or else memory.
///
/// # Errors
/// When a directory is in use, or cannot be read or written, or the database cannot be used.
pub(crate) async fn open(config: &Config, store: &StoreConfig) -> Result<Ends, Failure> {
    let (settings, database) = (&config.collector, &config.database);
    let mut sinks = Vec::new();
    let mut history: Option<Arc<dyn History>> = None;
    for kind in kinds(&settings.sinks, database)? {
        let sink: Arc<dyn Sink> = match kind {
            SinkKind::Store => {
                let store = open_store(store.clone())?;
                history = Some(Arc::clone(&store) as _);
                store
            }
            SinkKind::Postgres => {
                let postgres = open_postgres(database, store.keep, settings.fleet_bounds()).await?;
                history.get_or_insert(Arc::clone(&postgres) as _);
                postgres
            }
            SinkKind::Jsonl => lines::open(&store.dir, &config.jsonl)?,
        };
        sinks.push(sink);
    }
    let sink = Arc::new(Sinks(sinks));
    if let Some(history) = history {
        return Ok((sink, history));
    }
    let lost = Table::ALL.iter().filter(|table| **table != Table::GpuEvents).map(|table| table.name());
    tracing::warn!(
        tables = lost.collect::<Vec<_>>().join(" "),
        "collector.sinks has no store: rows of these tables are acknowledged and kept nowhere; to keep them add store \
         (--sinks store,jsonl)"
    );
    let memory = Arc::new(MemoryHistory::new(sink, settings));
    Ok((Arc::clone(&memory) as _, memory))
}

/// The sinks to open. A database takes the store's place, unless both are named.
fn kinds(named: &[SinkKind], database: &Database) -> Result<Vec<SinkKind>, Failure> {
    let (with_postgres, has_database) = (named.contains(&SinkKind::Postgres), !database.host.is_empty());
    if with_postgres && !has_database {
        let reason = "collector.sinks names postgres, and database.host is empty";
        return Err(Failure::new(Exit::Config, reason.to_owned()));
    }
    let is_wanted = |kind: &SinkKind| match kind {
        SinkKind::Store => named.contains(kind) && (with_postgres || !has_database),
        SinkKind::Postgres => with_postgres || has_database && named.contains(&SinkKind::Store),
        SinkKind::Jsonl => named.contains(kind),
    };
    Ok(SinkKind::value_variants().iter().copied().filter(is_wanted).collect())
}

/// Several sinks as one.
#[derive(Debug)]
struct Sinks(Vec<Arc<dyn Sink>>);

impl Sink for Sinks {
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move { all(self.0.iter().map(|sink| sink.accept(batches.clone()))).await })
    }

    fn close(&self) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(all(self.0.iter().map(|sink| sink.close())))
    }

    fn health(&self) -> Health {
        Health::of_all(self.0.iter().map(|sink| sink.health()))
    }

    fn families(&self) -> Vec<Family> {
        self.0.iter().flat_map(|sink| sink.families()).collect()
    }
}

/// Waits for all. Rows that one sink refuses and another may take later are tried again: only when no sink may take them
/// later are they refused.
async fn all<'a>(answers: impl Iterator<Item = Answer<'a, Result<(), SinkError>>>) -> Result<(), SinkError> {
    let errors = join_all(answers).await.into_iter().filter_map(Result::err);
    let worst = errors.max_by_key(|error| match error {
        SinkError::Refused(_) => 0,
        SinkError::Busy(_) => 1,
        SinkError::Closed => 2,
        SinkError::Failed(_) => 3,
    });
    worst.map_or(Ok(()), Err)
}

/// Opens the database: as a sink of the rows, and as a history. One that is away is no error: it is tried again.
///
/// # Errors
/// When the settings are wrong, or its tables are those of another version.
pub(crate) async fn open_postgres(
    database: &Database,
    keep: Option<Duration>,
    bounds: FleetBounds,
) -> Result<Arc<Postgres>, Failure> {
    let settings = database.clone().or_password(&std::env::var("PGPASSWORD").unwrap_or_default());
    let postgres = Postgres::open(settings, keep, bounds).await.map_err(|error| {
        Failure::caused(
            Exit::Config,
            format!("cannot use database {} of {}", database.dbname, database.host),
            error,
        )
    })?;
    tracing::info!(host = database.host, dbname = database.dbname, "rows are in PostgreSQL");
    Ok(Arc::new(postgres))
}

/// Opens the store.
///
/// # Errors
/// When the directory is in use, or cannot be read or written.
pub(crate) fn open_store(config: StoreConfig) -> Result<Arc<Store>, Failure> {
    let dir = config.dir.clone();
    let (store, recovered) = Store::open(config).map_err(|error| {
        let dir = dir.display();
        let hint = match &error {
            StoreError::NoManifest { .. } => format!(
                "; nothing was changed: `gpuvitals store repair --data-dir {dir}` rebuilds the manifest from the files"
            ),
            _ => String::new(),
        };
        Failure::new(store::exit(&error), format!("cannot open the data directory {dir}: {}{hint}", causes(&error)))
    })?;
    tracing::info!(
        dir = %dir.display(), gpus = recovered.gpus, files = recovered.files, file_rows = recovered.file_rows,
        log_rows = recovered.log_rows, torn_bytes = recovered.torn_bytes, "store is open"
    );
    if recovered.torn_bytes > 0 {
        tracing::warn!(
            bytes = recovered.torn_bytes,
            "the store's log ends in bytes that are no whole record: a write that was cut short, or damage to acknowledged \
             rows; nothing tells which"
        );
    }
    for damage in &recovered.damage {
        tracing::error!(damage, "something stored is damaged; the rest is served");
    }
    if recovered.in_quarantine > 0 {
        tracing::warn!(
            count = recovered.in_quarantine,
            "table files lie in quarantine/ and are not queried; `gpuvitals store repair` lists the whole ones again"
        );
    }
    if !recovered.unlisted.is_empty() {
        tracing::warn!(
            count = recovered.unlisted.len(),
            first = %recovered.unlisted.first().map(|path| path.display().to_string()).unwrap_or_default(),
            "files that the manifest does not list are in quarantine/ now, such as a crash leaves; if the store was \
             restored from a backup, stop it and run `gpuvitals store repair`"
        );
    }
    Ok(Arc::new(store))
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::ports::SinkError::{Busy, Closed, Failed, Refused};
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin};
    use gpuvitals_settings::Section;

    use super::*;
    use crate::config::Layers;

    #[tokio::test]
    async fn rows_are_in_every_sink_before_they_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let named = vec![("collector.sinks", ["store", "jsonl"].as_slice().into())];
        let config = Layers::of(named).check().unwrap();
        let (sink, history) = open(&config, &StoreConfig::new(dir.path())).await.unwrap();
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let gpu = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "gpu_0").unwrap());
        builder.row(1, gpu);
        let batch = builder.finish(Origin::default(), 0).unwrap();
        sink.accept(vec![batch.clone()]).await.unwrap();
        assert!(history.fleet().await.unwrap().answer.get("gpu_0").is_some());
        sink.close().await.unwrap();
        let written = std::fs::read_to_string(dir.path().join("gpu_0.jsonl")).unwrap();
        assert_eq!(
            written,
            "{\"gpu_id\":\"gpu_0\",\"metrics\":{},\"timestamp\":\"1970-01-01T00:00:00.000000001Z\"}\n"
        );
        assert!(matches!(sink.accept(vec![batch]).await, Err(Closed)));
    }

    #[test]
    fn a_database_takes_the_place_of_the_store_unless_both_are_named() {
        use SinkKind::{Jsonl, Postgres, Store};
        let settings =
            [("database.host", "db".into()), ("database.user", "u".into()), ("database.dbname", "d".into())];
        let (none, some) = (Database::of(&[]).unwrap(), Database::of(&settings).unwrap());
        let check = |named: &[SinkKind], database: &Database, expected: Option<&[SinkKind]>| {
            assert_eq!(kinds(named, database).ok().as_deref(), expected, "{named:?}");
        };
        check(&[Store], &none, Some(&[Store]));
        check(&[Store], &some, Some(&[Postgres]));
        check(&[Postgres, Store], &some, Some(&[Store, Postgres]));
        check(&[Jsonl], &some, Some(&[Jsonl]));
        check(&[Postgres], &none, None);
    }

    #[tokio::test]
    async fn one_sink_that_cannot_take_rows_decides_for_all() {
        let cause = || "why".into();
        let all_of = async |answers: Vec<Result<(), SinkError>>| {
            all(answers.into_iter().map(|answer| Box::pin(std::future::ready(answer)) as _)).await
        };
        assert!(matches!(all_of(vec![Ok(()), Ok(())]).await, Ok(())));
        assert!(matches!(all_of(vec![Ok(()), Err(Refused(cause()))]).await, Err(Refused(_))));
        assert!(matches!(all_of(vec![Err(Busy(cause())), Err(Refused(cause()))]).await, Err(Busy(_))));
        assert!(matches!(all_of(vec![Err(Failed(cause())), Err(Closed)]).await, Err(Failed(_))));
    }
}
