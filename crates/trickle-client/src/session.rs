//! A connection to a server.

use crate::error::{Error, Result};
use tokio_postgres::{Client, Config, IsolationLevel, NoTls};

/// A connection. Dropping it closes it; an open transaction is rolled back by the server.
pub struct Session {
    client: Client,
}

impl Session {
    /// Connects. Must be called within a tokio runtime, which then drives the connection.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub async fn connect(config: &Config) -> Result<Session> {
        let to = config.get_dbname().or_else(|| config.get_user()).unwrap_or("the default database");
        let doing = || format!("connect to \"{to}\"");
        let (client, connection) = config.connect(NoTls).await.map_err(|e| Error::new(doing(), e))?;
        // When the connection breaks, the statement that waits on it gets the error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Session { client })
    }

    /// The connection itself, for statements that are no part of a refresh.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs the statements of a refresh in order, in one transaction over one snapshot: all of them or none.
    /// Returns how many rows each wrote. The snapshot is taken by the first statement that needs one, so a
    /// `LOCK TABLE` in front waits without fixing it.
    ///
    /// # Errors
    /// The first statement that fails; nothing has changed then.
    pub async fn refresh(&mut self, statements: &[impl AsRef<str>]) -> Result<Vec<u64>> {
        let transaction = self
            .client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .start()
            .await
            .map_err(|e| Error::new("begin a refresh", e))?;
        let mut rows = Vec::with_capacity(statements.len());
        for statement in statements {
            let statement = statement.as_ref();
            let n = transaction.execute(statement, &[]).await.map_err(|e| Error::new(doing(statement), e))?;
            rows.push(n);
        }
        transaction.commit().await.map_err(|e| Error::new("commit a refresh", e))?;
        Ok(rows)
    }
}

/// `run "first words of the statement"`.
fn doing(statement: &str) -> String {
    let first = statement.lines().find(|l| !l.trim().is_empty()).unwrap_or_default().trim();
    match first.char_indices().nth(60) {
        Some((end, _)) => format!("run \"{} …\"", &first[..end]),
        None => format!("run \"{first}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::doing;

    #[test]
    fn a_statement_is_named_by_its_first_line() {
        assert_eq!(doing("\n  DELETE FROM t\nWHERE true"), "run \"DELETE FROM t\"");
        assert_eq!(doing(&"é".repeat(70)), format!("run \"{} …\"", "é".repeat(60)));
    }
}
