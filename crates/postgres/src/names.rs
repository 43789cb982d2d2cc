//! Numbers of subjects and identities, which rows refer to.

use std::collections::HashMap;
use std::hash::Hash;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use futures_util::TryStreamExt;
use gpuvitals_core::history::{Matcher, Selector, TextTest};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Identity, IdentityColumn};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, GenericClient, Row};

use crate::error::PostgresError;
use crate::schema;

/// Most numbers that are remembered of each kind; then they are forgotten and asked for anew.
const REMEMBERED_MAX: usize = 200_000;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Numbers that are known.
#[derive(Debug, Default)]
pub(crate) struct Names {
    subjects: Mutex<Map<Arc<str>, i32>>,
    identities: Mutex<Map<Arc<Identity>, i32>>,
    by_number: Mutex<Map<i32, Arc<Identity>>>,
}

impl Names {
    /// Forgets all, since they may be another database's.
    pub(crate) fn forget(&self) {
        lock(&self.subjects).clear();
        lock(&self.identities).clear();
        lock(&self.by_number).clear();
    }

    /// Numbers of these subjects, which are new ones where needed.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn subjects(
        &self,
        client: &Client,
        keys: &[Arc<str>],
    ) -> Result<Vec<i32>, PostgresError> {
        let failed = PostgresError::statement("number GPUs and hosts");
        let (mut found, new) = known(&self.subjects, keys);
        if !new.is_empty() {
            let names: Vec<&str> = new.iter().map(AsRef::as_ref).collect();
            let insert = "INSERT INTO gpuvitals_subjects (name) SELECT w.name FROM unnest($1::text[]) w(name) \
                          WHERE NOT EXISTS (SELECT FROM gpuvitals_subjects s WHERE s.name = w.name) ORDER BY w.name \
                          ON CONFLICT DO NOTHING";
            client.execute(insert, &[&names]).await.map_err(&failed)?;
            found.extend(self.find_subjects(client, &names).await?);
        }
        all(&found, keys)
    }

    /// Numbers of those of these subjects that have rows.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn known_subjects(
        &self,
        client: &impl GenericClient,
        keys: &[Arc<str>],
    ) -> Result<Vec<i32>, PostgresError> {
        let (mut found, new) = known(&self.subjects, keys);
        if !new.is_empty() {
            let names: Vec<&str> = new.iter().map(AsRef::as_ref).collect();
            found.extend(self.find_subjects(client, &names).await?);
        }
        Ok(found.into_values().collect())
    }

    async fn find_subjects(
        &self,
        client: &impl GenericClient,
        names: &[&str],
    ) -> Result<Vec<(Arc<str>, i32)>, PostgresError> {
        let select = "SELECT id, name FROM gpuvitals_subjects WHERE name = ANY($1)";
        let rows = client.query(select, &[&names]).await;
        let rows = rows.map_err(PostgresError::statement("number GPUs and hosts"))?;
        let found = rows.iter().map(|row| (Arc::from(row.get::<_, &str>(1)), row.get(0)));
        Ok(remember(&self.subjects, found.collect()))
    }

    /// Numbers of these identities, which are new ones where needed.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn identities(
        &self,
        client: &Client,
        identities: &[Arc<Identity>],
    ) -> Result<Vec<i32>, PostgresError> {
        let failed = PostgresError::statement("number identities");
        let (mut found, new) = known(&self.identities, identities);
        if !new.is_empty() {
            let indices: Vec<Option<i32>> = new.iter().map(|identity| identity.index).collect();
            let texts = IdentityColumn::ALL
                .map(|column| new.iter().map(|identity| identity.get(column)).collect::<Vec<Option<&str>>>());
            let mut values: Vec<&(dyn ToSql + Sync)> = vec![&indices];
            values.extend(texts.iter().map(|texts| texts as &(dyn ToSql + Sync)));
            let columns = schema::identity_columns();
            let places: Vec<String> =
                (2..=texts.len() + 1).map(|place| format!("${place}::text[]")).collect();
            let wanted =
                format!("unnest($1::int4[], {}) WITH ORDINALITY w({columns}, place)", places.join(", "));
            let same = format!(
                "{} = {}",
                schema::image(|column| format!("i.{column}")),
                schema::image(|column| format!("w.{column}"))
            );
            let insert = format!(
                "INSERT INTO gpuvitals_identities ({columns}) SELECT {columns} FROM {wanted} \
                 WHERE NOT EXISTS (SELECT FROM gpuvitals_identities i WHERE {same}) ORDER BY place ON CONFLICT DO NOTHING"
            );
            client.execute(&insert, &values).await.map_err(&failed)?;
            let select = format!("SELECT i.id, w.place FROM {wanted} JOIN gpuvitals_identities i ON {same}");
            let rows = client.query(&select, &values).await.map_err(&failed)?;
            let numbered = rows.iter().filter_map(|row| {
                let place = usize::try_from(row.get::<_, i64>(1)).ok()?.checked_sub(1)?;
                Some((Arc::clone(new.get(place)?), row.get(0)))
            });
            found.extend(remember(&self.identities, numbered.collect()));
        }
        all(&found, identities)
    }

    /// The identities of these numbers.
    ///
    /// # Errors
    /// If the server refuses.
    pub(crate) async fn by_number(
        &self,
        client: &impl GenericClient,
        wanted: &[i32],
    ) -> Result<Map<i32, Arc<Identity>>, PostgresError> {
        let (mut found, new) = known(&self.by_number, wanted);
        if !new.is_empty() {
            let columns = schema::identity_columns();
            let select = format!("SELECT id, {columns} FROM gpuvitals_identities WHERE id = ANY($1)");
            let rows = client.query(&select, &[&new]).await;
            let rows = rows.map_err(PostgresError::statement("read identities"))?;
            let identities = rows.iter().map(|row| (row.get(0), Arc::new(identity(row))));
            found.extend(remember(&self.by_number, identities.collect()));
        }
        Ok(found)
    }
}

/// Numbers of the identities that pass all tests. The server compares texts, patterns are matched here.
///
/// # Errors
/// If the server refuses.
pub(crate) async fn selected(
    client: &impl GenericClient,
    selector: &Selector,
) -> Result<Vec<i32>, PostgresError> {
    let failed = PostgresError::statement("read identities");
    let (mut columns, mut conditions) = (vec!["id".to_owned()], vec!["true".to_owned()]);
    let (mut patterns, mut lists) = (Vec::new(), Vec::new());
    for Matcher { column, test } in selector.matchers() {
        let column = format!("coalesce({}, '')", column.name());
        let (texts, comparison) = match test {
            TextTest::Is(texts) => (texts, "= ANY"),
            TextTest::IsNot(texts) => (texts, "<> ALL"),
            TextTest::Matches(_) | TextTest::MatchesNot(_) => {
                columns.push(column);
                patterns.push(test);
                continue;
            }
        };
        // PostgreSQL has no text with a zero byte, and takes none.
        let texts = texts.iter().map(AsRef::as_ref).filter(|text: &&str| !text.contains('\0'));
        lists.push(texts.collect::<Vec<&str>>());
        conditions.push(format!("{column} {comparison} (${}::text[])", lists.len()));
    }
    let (columns, conditions) = (columns.join(", "), conditions.join(" AND "));
    let select = format!("SELECT {columns} FROM gpuvitals_identities WHERE {conditions}");
    let lists = lists.iter().map(|texts| texts as &(dyn ToSql + Sync));
    let mut found = pin!(client.query_raw(&select, lists).await.map_err(&failed)?);
    let mut numbers = Vec::new();
    while let Some(row) = found.try_next().await.map_err(&failed)? {
        if patterns.iter().zip(1..).all(|(pattern, place): (_, usize)| pattern.holds(row.get(place))) {
            numbers.push(row.get(0));
        }
    }
    Ok(numbers)
}

/// Names of all subjects, by their numbers.
///
/// # Errors
/// If the server refuses.
pub(crate) async fn all_subjects(
    client: &impl GenericClient,
) -> Result<HashMap<i32, Arc<str>, RandomState>, PostgresError> {
    let failed = PostgresError::statement("read the names of GPUs and hosts");
    let rows = client.query("SELECT id, name FROM gpuvitals_subjects", &[]).await.map_err(failed)?;
    Ok(rows.iter().map(|row| (row.get(0), Arc::from(row.get::<_, &str>(1)))).collect())
}

/// The identity of a row of `gpuvitals_identities`.
fn identity(row: &Row) -> Identity {
    let mut identity = Identity::default();
    identity.index = row.get(INDEX_COLUMN);
    for column in IdentityColumn::ALL {
        if let Some(text) = row.get::<_, Option<&str>>(column.name()) {
            // Checked when the row came in; a text that fails is left out.
            let _checked = identity.set(column, text);
        }
    }
    identity
}

/// What is remembered of these, and those of which nothing is.
fn known<K: Hash + Eq + Clone, V: Clone>(memory: &Mutex<Map<K, V>>, wanted: &[K]) -> (Map<K, V>, Vec<K>) {
    let mut memory = lock(memory);
    if memory.len() > REMEMBERED_MAX {
        memory.clear();
    }
    let (mut found, mut new) = (Map::default(), Vec::new());
    for key in wanted {
        match memory.get(key) {
            Some(value) => drop(found.insert(key.clone(), value.clone())),
            None => new.push(key.clone()),
        }
    }
    (found, new)
}

fn remember<K: Hash + Eq + Clone, V: Clone>(memory: &Mutex<Map<K, V>>, found: Vec<(K, V)>) -> Vec<(K, V)> {
    lock(memory).extend(found.iter().cloned());
    found
}

fn all<K: Hash + Eq>(found: &Map<K, i32>, wanted: &[K]) -> Result<Vec<i32>, PostgresError> {
    wanted.iter().map(|key| found.get(key).copied().ok_or(PostgresError::Unnumbered)).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
