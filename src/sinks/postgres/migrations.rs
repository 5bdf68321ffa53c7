//! The migrations of the database schema: `weir log init` applies them, all other connections check them.

use tokio_postgres::{Client, Transaction, error::SqlState};

use crate::sinks::postgres::error::PostgresError;

/// The migrations, in their order. Each is applied once and never changes afterwards. Later ones only add, so that older versions
/// of weir keep working.
const MIGRATIONS: [&str; 4] = [
    include_str!("migrations/0001_log.sql"),
    include_str!("migrations/0002_retention.sql"),
    include_str!("migrations/0003_hold_and_attempts.sql"),
    include_str!("migrations/0004_modalities.sql"),
];
/// The advisory lock that is held while migrations are applied, so that only one process applies them.
const LOCK: i64 = 7_523_094_288_207_667_298;

/// Applies the missing migrations; returns their numbers.
pub(super) async fn apply(client: &mut Client) -> Result<Vec<i32>, PostgresError> {
    let transaction = client.transaction().await?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await?;
    // Checked first: a role that may use the schema need not be allowed to create it.
    let found = transaction
        .query_one("SELECT to_regclass('weir.migration') IS NOT NULL", &[])
        .await?;
    if !found.try_get::<_, bool>(0)? {
        transaction
            .batch_execute(
                "CREATE SCHEMA IF NOT EXISTS weir;
                 CREATE TABLE weir.migration (
                     number integer PRIMARY KEY,
                     applied_at timestamptz NOT NULL DEFAULT now()
                 )",
            )
            .await?;
    }
    let last = last_migration(&transaction).await?;
    let mut applied = Vec::new();
    for (number, sql) in (1_i32..).zip(MIGRATIONS).filter(|(number, _)| *number > last) {
        transaction.batch_execute(sql).await?;
        transaction
            .execute("INSERT INTO weir.migration (number) VALUES ($1)", &[&number])
            .await?;
        applied.push(number);
    }
    transaction.commit().await?;
    Ok(applied)
}

async fn last_migration(transaction: &Transaction<'_>) -> Result<i32, PostgresError> {
    let row = transaction
        .query_one("SELECT coalesce(max(number), 0) FROM weir.migration", &[])
        .await?;
    Ok(row.try_get(0)?)
}

/// Fails if a migration is missing. Migrations that this version does not know are not an error.
pub(super) async fn check(client: &Client) -> Result<(), PostgresError> {
    let asked = client
        .query_one("SELECT coalesce(max(number), 0) FROM weir.migration", &[])
        .await;
    let last: i32 = match asked {
        Ok(row) => row.try_get(0)?,
        Err(error) => {
            let code = error.code();
            let absent = code == Some(&SqlState::UNDEFINED_TABLE) || code == Some(&SqlState::INVALID_SCHEMA_NAME);
            return Err(if absent { PostgresError::NotReady } else { error.into() });
        }
    };
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    if last < known {
        Err(PostgresError::NotReady)
    } else {
        Ok(())
    }
}

/// Grants a role the rights to write the log, and no others: it can neither change nor remove rows.
pub(super) async fn grant_writer(client: &Client, role: &str) -> Result<(), PostgresError> {
    let role = quoted(role);
    let grants = format!(
        "GRANT USAGE ON SCHEMA weir TO {role};
         GRANT SELECT, INSERT ON weir.log TO {role};
         GRANT SELECT, INSERT, UPDATE ON weir.sink TO {role};
         GRANT SELECT ON weir.migration TO {role};
         GRANT EXECUTE ON FUNCTION weir.make_partition(date), weir.drop_oldest(integer) TO {role};"
    );
    Ok(client.batch_execute(&grants).await?)
}

/// Grants a role the rights to read the log.
pub(super) async fn grant_reader(client: &Client, role: &str) -> Result<(), PostgresError> {
    let role = quoted(role);
    let grants = format!("GRANT USAGE ON SCHEMA weir TO {role}; GRANT SELECT ON weir.log TO {role};");
    Ok(client.batch_execute(&grants).await?)
}

/// Quotes a name for SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_of_any_name_is_one_word_of_sql() {
        for (name, written) in [
            ("weir", "\"weir\""),
            ("a b", "\"a b\""),
            ("x\"; DROP TABLE t; --", "\"x\"\"; DROP TABLE t; --\""),
        ] {
            assert_eq!(quoted(name), written);
        }
    }
}
