//! All tables: each by its name, merged by its own key, through log, files and restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_core::batch::{Value, numbers, text_at};
use gpuvitals_core::catalogue::ColumnRole;
use gpuvitals_core::history::RowsQuery;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};
use gpuvitals_store::{Store, StoreConfig};

use super::support::{HOUR, Model, SECOND, batch, contents, everything, quiet, row, rows_of};

/// A row of a table: GPU, time, number and value. Where the key has more than GPU and time, the number is in it.
type Put = (&'static str, i64, i64, i64);

/// Two arrivals for one key each, once with the smaller value last, keys that differ in one part only, and a late row.
const PUTS: [Put; 10] = [
    ("GPU-1", HOUR, 0, 1),
    ("GPU-1", HOUR, 1, 2),
    ("GPU-2", HOUR, 0, 3),
    ("GPU-1", HOUR + SECOND, 0, 4),
    ("GPU-1", HOUR, 1, 5),
    ("GPU-1:p1", HOUR, 1, 6),
    ("GPU-10", HOUR, 1, 7),
    ("GPU-1", HOUR - SECOND, 2, 8),
    ("GPU-2", HOUR, 0, 9),
    ("GPU-10", HOUR, 1, 6),
];

fn rows(table: Table, puts: &[Put]) -> Batch {
    let mut builder = BatchBuilder::new(table);
    for (gpu, time, number, value) in puts {
        let (uuid, partition) = gpu.split_once(':').unwrap_or((gpu, ""));
        let mut identity = Identity::default();
        if table.subject() == IdentityColumn::Node {
            // A GPU that all hosts name is no part of their rows' key.
            identity.set(IdentityColumn::Uuid, "GPU-0").unwrap();
            identity.set(IdentityColumn::Partition, &format!("p{value}")).unwrap();
            identity.set(IdentityColumn::Node, &gpu.replace("GPU", "node")).unwrap();
        } else {
            identity.set(IdentityColumn::Uuid, uuid).unwrap();
            identity.set(IdentityColumn::Partition, partition).unwrap();
        }
        let identity = builder.intern(&identity);
        let row = builder.row(*time, identity);
        for column in table.columns() {
            let number = if column.role == ColumnRole::Key { *number } else { *value };
            match column.column_type {
                Some(_) => builder.set_extra(row, column.name, Value::Int(number)).unwrap(),
                None => builder.set_extra_text(row, column.name, &format!("text {number}")).unwrap(),
            }
        }
        if let Some(metric) = metric_of(table) {
            builder.set(row, metric, Value::Int(*value)).unwrap();
        }
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// A metric of the table, if it has any.
fn metric_of(table: Table) -> Option<gpuvitals_core::MetricId> {
    match table {
        Table::GpuEvents => catalogue::by_column("memory_used_mb"),
        Table::SystemEvents => catalogue::by_column("memory_mb"),
        _ => None,
    }
}

/// Key of a row, and its other columns.
type Spelled = BTreeMap<Vec<String>, Vec<String>>;

fn spelled(batch: &Batch) -> Spelled {
    let mut found = Spelled::new();
    for at in 0..batch.rows() {
        let identity = batch.identity(at);
        let of_hosts = batch.table().subject() == IdentityColumn::Node;
        let subject = if of_hosts { Arc::from(identity.node().unwrap()) } else { identity.key().unwrap() };
        let time = batch.timestamps().get(at).unwrap();
        let mut key = vec![subject.to_string(), time.to_string()];
        let mut others = Vec::new();
        for (name, array) in batch.extras() {
            use arrow_array::cast::AsArray as _;
            let text = match numbers(array) {
                Some(numbers) => format!("{:?}", numbers.value(at)),
                None => text_at(array.as_dictionary(), at).unwrap().to_owned(),
            };
            let is_key = batch.table().column(name).is_some_and(|column| column.role == ColumnRole::Key);
            if is_key { &mut key } else { &mut others }.push(text);
        }
        others.extend(batch.metrics().map(|(_, values)| format!("{:?}", values.value(at))));
        assert!(found.insert(key, others).is_none(), "a key came twice in {}", batch.table());
    }
    found
}

/// What the arrivals come to: the later one of a key stays, or that with the larger version, which is the value.
fn expected(table: Table) -> Spelled {
    let mut all = Spelled::new();
    let mut puts = PUTS;
    if table.version().is_some() {
        puts.sort_by_key(|(.., value)| *value);
    }
    for put in puts {
        all.extend(spelled(&rows(table, &[put])));
    }
    all
}

fn check(store: &Store, when: &str) {
    for table in Table::ALL {
        let everything = RowsQuery { with_total: true, ..RowsQuery::of(table, 100) };
        let found = rows_of(store, everything.clone());
        assert_eq!(found.missing, Vec::<String>::new());
        let batch = found.answer.batch.unwrap();
        assert_eq!(batch.table(), table);
        assert_eq!(spelled(&batch), expected(table), "{table}, {when}");
        assert_eq!(found.answer.total, Some(batch.rows()), "{table}, {when}");
        assert!(batch.timestamps().is_sorted());
        // Page by page, and of one GPU only: the same rows, no other GPU's.
        let mut pages = Spelled::new();
        for offset in (0..batch.rows()).step_by(2) {
            let page = RowsQuery { limit: 2, offset, newest_first: true, ..everything.clone() };
            pages.extend(spelled(&rows_of(store, page).answer.batch.unwrap()));
        }
        assert_eq!(pages, expected(table), "{table} in pages, {when}");
        let one: Arc<str> =
            Arc::from(if table.subject() == IdentityColumn::Node { "node-1" } else { "GPU-1" });
        let of_one = RowsQuery { gpus: vec![Arc::clone(&one)], ..everything.clone() };
        let found = rows_of(store, of_one).answer;
        let mut wanted = expected(table);
        wanted.retain(|key, _| key.first().is_some_and(|gpu| **gpu == *one));
        assert_eq!(found.total, Some(wanted.len()), "{table} of {one}, {when}");
        assert_eq!(spelled(&found.batch.unwrap()), wanted, "{table} of {one}, {when}");
    }
}

#[tokio::test]
async fn every_table_keeps_its_rows_by_its_own_key_through_log_files_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let config = || StoreConfig { merge: true, merge_files: 2, ..quiet(dir.path()) };
    let (store, _) = Store::open(config()).unwrap();
    let (early, late) = PUTS.split_at(5);
    // All tables in one append, as a frame of the queue may bring them.
    store.append(Table::ALL.map(|table| rows(table, early)).to_vec()).await.unwrap();
    store.append(Table::ALL.map(|table| rows(table, late)).to_vec()).await.unwrap();
    check(&store, "in memory");
    drop(store);
    let (store, found) = Store::open(config()).unwrap();
    assert_eq!((found.records, found.log_rows), (2, 70));
    check(&store, "from the log");
    store.flush().await.unwrap();
    check(&store, "in files");
    // A second file a table and hour, with the same rows again: they stay single, and are merged into one file.
    store.append(Table::ALL.map(|table| rows(table, &PUTS[3..])).to_vec()).await.unwrap();
    check(&store, "in files and memory");
    store.close().await.unwrap();
    drop(store);
    let (store, found) = Store::open(config()).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    check(&store, "from files");
    for table in Table::ALL {
        assert!(dir.path().join(format!("raw/{table}/2026-11-20")).is_dir());
    }
}

#[tokio::test]
async fn other_tables_are_no_gpus_of_the_fleet_and_no_rows_of_gpu_events() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let gpu = [row("GPU-9", HOUR, &[("power_w", 100.0)])];
    store.append(vec![batch(&gpu)]).await.unwrap();
    let others = Table::ALL.into_iter().filter(|table| *table != Table::GpuEvents);
    store.append(others.map(|table| rows(table, &PUTS)).collect()).await.unwrap();
    let mut model = Model::default();
    model.add(&gpu);
    for _restart in 0..2 {
        assert!(contents(&store) == model);
        assert_eq!(store.fleet().gpus.len(), 1);
        assert_eq!(rows_of(&store, everything()).answer.total, Some(1));
        store.flush().await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("fleet-")) {
            std::fs::write(path, "damaged").unwrap();
        }
    }
    // The latest values come from the files now.
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(store.fleet().gpus.len(), 1);
    assert!(contents(&store) == model);
}
