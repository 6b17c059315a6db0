//! A connection that breaks after a number of messages, as if the program died at that point.

use super::Db;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio_postgres::{Config, NoTls};
use trickle_client::Session;

/// The number of messages that may still pass to the server. If the number is less than 0, the connection is
/// cut.
#[derive(Clone)]
pub(crate) struct Budget(Arc<AtomicI64>);

impl Budget {
    /// Lets this number of messages pass from this point on.
    pub(crate) fn set(&self, messages: i64) {
        self.0.store(messages, Ordering::SeqCst);
    }
    /// Returns the number of messages that may still pass.
    pub(crate) fn left(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
    /// Whether the budget was used up, so that the connection is cut.
    pub(crate) fn is_spent(&self) -> bool {
        self.0.load(Ordering::SeqCst) < 0
    }
}

/// Connects to a test's database, without a limit at first.
pub(crate) async fn connect(db: &Db) -> (Session, Budget) {
    let (config, path) = db.socket();
    connect_to(&config, &path).await
}

/// Connects to any database of a server by its socket, without a limit at first.
pub(crate) async fn connect_to(config: &Config, path: &Path) -> (Session, Budget) {
    let budget = Budget(Arc::new(AtomicI64::new(i64::MAX)));
    let server = UnixStream::connect(path).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let (mut back_from, mut back_to) = (server.try_clone().unwrap(), far.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(Shutdown::Both);
    });
    let left = budget.clone();
    std::thread::spawn(move || {
        let _ = forward(&far, &server, &left);
        let _ = server.shutdown(Shutdown::Both);
        let _ = far.shutdown(Shutdown::Both);
    });
    near.set_nonblocking(true).unwrap();
    let near = tokio::net::UnixStream::from_std(near).unwrap();
    let (client, connection) = config.connect_raw(near, NoTls).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    (Session::new(client), budget)
}

/// Passes messages on until the budget is spent. The first message begins with its length, and does not
/// count. Each later message begins with a letter before its length.
fn forward(mut from: &UnixStream, mut to: &UnixStream, budget: &Budget) -> std::io::Result<()> {
    let mut letter = false;
    loop {
        let mut head = vec![0; if letter { 5 } else { 4 }];
        from.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap());
        let mut body = vec![0; length as usize - 4];
        from.read_exact(&mut body)?;
        if letter && budget.0.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Ok(());
        }
        letter = true;
        to.write_all(&head)?;
        to.write_all(&body)?;
    }
}
