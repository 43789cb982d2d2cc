//! The tables, derived from the catalogue.

use std::collections::HashMap;
use std::fmt::Write as _;

use gpuvitals_core::catalogue::{ColumnType, METRICS, by_column};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{IdentityColumn, Table, causes};
use tokio_postgres::Client;

use crate::error::PostgresError;

/// Version of the layout. Columns are not part of it: they come and grow with the catalogue.
const VERSION: i32 = 1;
/// Key of the advisory lock under which tables and partitions are made: `gpuvital` in ASCII.
const LOCK: i64 = 0x6770_7576_6974_616c;
/// The column with what the catalogue does not know.
pub(crate) const EXTRAS: &str = "extras";

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Number(ColumnType),
    Text,
    Json,
}

impl ColumnKind {
    /// Bytes of a number.
    pub(crate) fn width(self) -> usize {
        if matches!(self, Self::Number(ColumnType::I32 | ColumnType::F32)) { 4 } else { 8 }
    }

    /// PostgreSQL's name of it.
    fn sql(self) -> &'static str {
        match self {
            Self::Number(ColumnType::I32) => "int4",
            Self::Number(ColumnType::I64) => "int8",
            Self::Number(ColumnType::F32) => "float4",
            Self::Number(ColumnType::F64) => "float8",
            Self::Text => "text",
            Self::Json => "jsonb",
        }
    }
}

/// Columns of a table beside subject, time and identity: its own, then its metrics.
pub(crate) fn columns(table: Table) -> impl Iterator<Item = (&'static str, ColumnKind)> {
    let own = table
        .columns()
        .iter()
        .map(|column| (column.name, column.column_type.map_or(ColumnKind::Text, ColumnKind::Number)));
    let metrics = METRICS.iter().filter(move |metric| metric.table == table);
    own.chain(metrics.map(|metric| (metric.column, ColumnKind::Number(metric.column_type))))
}

/// A column of [`columns`], by name.
pub(crate) fn column(table: Table, name: &str) -> Option<(&'static str, ColumnKind)> {
    if let Some(own) = table.column(name) {
        return Some((own.name, own.column_type.map_or(ColumnKind::Text, ColumnKind::Number)));
    }
    let metric = by_column(name)?.metric();
    (metric.table == table).then_some((metric.column, ColumnKind::Number(metric.column_type)))
}

/// Names of the columns of `gpuvitals_identities`, with commas.
pub(crate) fn identity_columns() -> String {
    let names = IdentityColumn::ALL.into_iter().map(IdentityColumn::name);
    std::iter::once(INDEX_COLUMN).chain(names).collect::<Vec<_>>().join(", ")
}

/// The expression by which two identities are the same. `value` makes the expression of a column.
pub(crate) fn image(value: impl Fn(&str) -> String) -> String {
    let text =
        IdentityColumn::ALL.into_iter().map(|column| format!("coalesce({}, '')", value(column.name())));
    let number = format!("coalesce(({})::text, '')", value(INDEX_COLUMN));
    // No text of an identity has a control character.
    format!("md5({})", std::iter::once(number).chain(text).collect::<Vec<_>>().join(r" || E'\x1f' || "))
}

/// Takes the lock of those who make tables, until the transaction ends.
pub(crate) async fn lock(transaction: &tokio_postgres::Transaction<'_>) -> Result<(), PostgresError> {
    let locked = transaction.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await;
    locked.map_err(PostgresError::statement("wait for those who make tables"))
}

/// Makes what is missing. Any number of processes may do so at a time.
///
/// # Errors
/// If the layout, or the type of a column, is that of another version, or the user may not.
pub(crate) async fn migrate(client: &mut Client) -> Result<(), PostgresError> {
    match make(client).await {
        Err(error) => Err(explained(client, "make the tables", error).await),
        Ok(()) => Ok(()),
    }
}

/// The error with the remedy, if the user lacks a right to make tables.
pub(crate) async fn explained(client: &Client, doing: &'static str, error: PostgresError) -> PostgresError {
    let PostgresError::Statement { source, .. } = &error else { return error };
    if !error.lacks_right() {
        return error;
    }
    match remedy(client).await {
        Ok(Some(remedy)) => PostgresError::Right { doing, reason: causes(source), remedy },
        Ok(None) => error,
        Err(unknown) => {
            tracing::debug!(error = causes(&unknown), "PostgreSQL does not say which right is missing");
            error
        }
    }
}

/// Who gives this user which right to make tables, if one is missing. The server's own words may be in any language.
async fn remedy(client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
    let select = "SELECT quote_ident(current_user::text), quote_ident(current_schema()::text), \
                  has_schema_privilege(current_schema()::text, 'CREATE'), \
                  (SELECT quote_ident(tableowner::text) FROM pg_tables \
                   WHERE schemaname = current_schema() AND tablename = 'gpuvitals_schema')";
    let row = client.query_one(select, &[]).await?;
    let user: String = row.get(0);
    let (schema, may_create, owner): (Option<String>, Option<bool>, Option<String>) =
        (row.get(1), row.get(2), row.get(3));
    let given = match (schema, owner) {
        (None, _) => Some(format!("as the database's owner: CREATE SCHEMA AUTHORIZATION {user}")),
        (Some(schema), _) if may_create == Some(false) => {
            Some(format!("as its owner: GRANT CREATE ON SCHEMA {schema} TO {user}"))
        }
        (_, Some(owner)) if owner != user => {
            Some(format!("as a superuser: GRANT {owner} TO {user}, or let database.user be {owner}"))
        }
        _ => None,
    };
    Ok(given.map(|given| format!("{given}; docs/postgres.md has all rights")))
}

async fn make(client: &mut Client) -> Result<(), PostgresError> {
    let failed = PostgresError::statement("make the tables");
    let transaction = client.transaction().await.map_err(&failed)?;
    lock(&transaction).await?;
    transaction
        .batch_execute("CREATE TABLE IF NOT EXISTS gpuvitals_schema (version int4 PRIMARY KEY)")
        .await
        .map_err(&failed)?;
    let versions = transaction.query("SELECT version FROM gpuvitals_schema", &[]).await.map_err(&failed)?;
    if let Some(found) = versions.iter().map(|row| row.get::<_, i32>(0)).find(|found| *found != VERSION) {
        return Err(PostgresError::Layout { found, ours: VERSION });
    }
    transaction.batch_execute(&tables()).await.map_err(&failed)?;
    let found = transaction
        .query(
            "SELECT table_name::text, column_name::text, udt_name::text FROM information_schema.columns \
             WHERE table_schema = current_schema()",
            &[],
        )
        .await
        .map_err(&failed)?;
    let found: HashMap<(String, String), String> =
        found.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    for table in Table::ALL {
        let changes = changes(table, &found)?;
        if !changes.is_empty() {
            let change = format!("ALTER TABLE {table} {}", changes.join(", "));
            transaction.batch_execute(&change).await.map_err(&failed)?;
        }
    }
    transaction.commit().await.map_err(&failed)
}

/// Statements that make everything but the columns that may be added later.
fn tables() -> String {
    let texts: Vec<String> =
        IdentityColumn::ALL.into_iter().map(|column| format!("{} text", column.name())).collect();
    let image_of_row = image(str::to_owned);
    let mut sql = format!(
        "INSERT INTO gpuvitals_schema VALUES ({VERSION}) ON CONFLICT DO NOTHING;
         CREATE TABLE IF NOT EXISTS gpuvitals_subjects (
             id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
         CREATE TABLE IF NOT EXISTS gpuvitals_identities (
             id int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {INDEX_COLUMN} int4, {});
         CREATE UNIQUE INDEX IF NOT EXISTS gpuvitals_identities_once ON gpuvitals_identities (({image_of_row}));
         {};",
        texts.join(", "),
        merging_function(),
    );
    for table in Table::ALL {
        let keys: Vec<(&str, ColumnKind)> =
            columns(table).filter(|(name, _)| table.key().any(|key| key.name == *name)).collect();
        let declared: Vec<String> =
            keys.iter().map(|(name, kind)| format!("{name} {} NOT NULL, ", kind.sql())).collect();
        let names: Vec<String> = keys.iter().map(|(name, _)| format!(", {name}")).collect();
        let (declared, names) = (declared.concat(), names.concat());
        // Writing to a string does not fail.
        let _written = write!(
            sql,
            "CREATE TABLE IF NOT EXISTS {table} (
                 subject_id int4 NOT NULL, timestamp_ns int8 NOT NULL, identity_id int4 NOT NULL, {declared}
                 PRIMARY KEY (subject_id, timestamp_ns{names})) PARTITION BY RANGE (timestamp_ns);
             CREATE INDEX IF NOT EXISTS {table}_timestamp_ns_idx ON {table} (timestamp_ns);"
        );
    }
    sql
}

/// A function for rows of one key with two identities: the identity that has the later one's columns, and the earlier one's
/// where the later has none.
fn merging_function() -> String {
    let both = |column: &str| format!("coalesce(later.{column}, earlier.{column})");
    let names = identity_columns();
    let values: Vec<String> = names.split(", ").map(both).collect();
    let two =
        "gpuvitals_identities earlier, gpuvitals_identities later WHERE earlier.id = $1 AND later.id = $2";
    format!(
        "CREATE OR REPLACE FUNCTION gpuvitals_merged(int4, int4) RETURNS int4 LANGUAGE plpgsql AS $$
         DECLARE merged int4;
         BEGIN
             LOOP
                 SELECT id INTO merged FROM gpuvitals_identities
                     WHERE {} = (SELECT {} FROM {two});
                 IF merged IS NOT NULL THEN RETURN merged; END IF;
                 INSERT INTO gpuvitals_identities ({names}) SELECT {} FROM {two} ON CONFLICT DO NOTHING;
             END LOOP;
         END $$",
        image(|column| format!("gpuvitals_identities.{column}")),
        image(both),
        values.join(", "),
    )
}

/// What a table lacks: columns, and room in columns that have grown.
fn changes(table: Table, found: &HashMap<(String, String), String>) -> Result<Vec<String>, PostgresError> {
    let mut changes = Vec::new();
    for (name, kind) in columns(table).chain([(EXTRAS, ColumnKind::Json)]) {
        let wanted = kind.sql();
        match found.get(&(table.name().to_owned(), name.to_owned())).map(String::as_str) {
            None => changes.push(format!("ADD COLUMN {name} {wanted}")),
            Some(found) if found == wanted => {}
            Some("int4") if matches!(wanted, "int8" | "float8") => {
                changes.push(format!("ALTER COLUMN {name} TYPE {wanted}"));
            }
            Some("int8" | "float4") if wanted == "float8" => {
                changes.push(format!("ALTER COLUMN {name} TYPE {wanted}"));
            }
            Some(found) => {
                let (table, column) = (table.name().to_owned(), name.to_owned());
                return Err(PostgresError::Column { table, column, found: found.to_owned(), wanted });
            }
        }
    }
    Ok(changes)
}
