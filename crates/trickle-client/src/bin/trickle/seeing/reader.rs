//! Reads the state of stream tables again and again, over a connection of its own.

use super::model::{Open, Seen, Snapshot};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use trickle_client::connect::Target;
use trickle_client::{Error, Name, Result, Session, Settings, Trickle};
use trickle_engine::health::open_transactions;

/// The longest time that a read of the state of the stream tables may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time for which the result of one read answers further requests.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// A reader of one database, and its memory of earlier reads.
pub(crate) struct Reader {
    target: Target,
    settings: Settings,
    /// The names of the stream tables to read. An empty list means all stream tables.
    names: Vec<Name>,
    trickle: Option<Trickle>,
    seen: Seen,
}

impl Reader {
    /// Makes a reader that connects at the first read.
    pub(crate) fn new(target: Target, settings: Settings, names: Vec<Name>) -> Reader {
        Reader { target, settings, names, trickle: None, seen: Seen::default() }
    }

    /// Reads the state of the stream tables. A read that takes too long is given up, and its statement in the
    /// server is cancelled.
    ///
    /// # Errors
    /// There is no connection, and the next call connects anew. There is no stream table of one of the names.
    /// The server refuses a statement.
    pub(crate) async fn read(&mut self) -> Result<Snapshot> {
        let mut trickle = match self.trickle.take() {
            Some(trickle) => trickle,
            None => {
                let open = async {
                    let session = Session::new(self.target.connect().await?);
                    Trickle::open(session, self.settings.clone()).await
                };
                tokio::time::timeout(PATIENCE, open).await.map_err(|_| slow())??
            }
        };
        let cancel = trickle.connection().cancel();
        let Ok(read) = tokio::time::timeout(PATIENCE, ask(&mut trickle, &self.names)).await else {
            // The connection is closed even if the request to cancel fails.
            let _ = tokio::time::timeout(GOOD_FOR, cancel.send()).await;
            return Err(slow());
        };
        if !read.as_ref().is_err_and(Error::is_connection) {
            self.trickle = Some(trickle);
        }
        let (all, buffers, refresher, open) = read?;
        Ok(self.seen.snapshot(&all, &buffers, refresher, open, Instant::now()))
    }
}

fn slow() -> Error {
    Error::connection(format!("the database did not answer within {} s", PATIENCE.as_secs()))
}

type Read =
    (Vec<trickle_client::Status>, Vec<trickle_client::BufferStatus>, trickle_client::Refresher, Vec<Open>);

async fn ask(trickle: &mut Trickle, names: &[Name]) -> Result<Read> {
    let all = trickle.status(names).await?;
    let buffers = trickle.buffers().await?;
    let (open, long) = (open_transactions(trickle.db()).await?, trickle.settings().long_transaction);
    let open = open.iter().map(|o| Open::new(o, long)).collect();
    Ok((all, buffers, trickle.refresher().await?, open))
}

/// The last result of a reader.
#[derive(Clone, Default)]
pub(super) struct View {
    /// The last state that was read; `None` if no read has succeeded yet.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// The age of the snapshot.
    pub(super) age: Duration,
    /// The reason why there is no newer snapshot.
    pub(super) trouble: Option<String>,
}

/// A request for the state: the sender by which the request is answered.
pub(super) type Asked = oneshot::Sender<View>;

/// Answers requests for the state, one after the other. The database is read at most once a second, however
/// many requests there are. The function ends when nobody can send a request any more.
pub(super) async fn answer(mut reader: Reader, mut asked: mpsc::Receiver<Asked>) {
    let mut last = View::default();
    let (mut tried, mut read) = (None::<Instant>, Instant::now());
    while let Some(who) = asked.recv().await {
        if tried.is_none_or(|at| at.elapsed() >= GOOD_FOR) {
            match reader.read().await {
                Ok(snapshot) => {
                    read = Instant::now();
                    last = View { snapshot: Some(Arc::new(snapshot)), ..View::default() };
                }
                Err(e) => last.trouble = Some(e.message().to_owned()),
            }
            tried = Some(Instant::now());
        }
        last.age = read.elapsed();
        // An error means that nobody waits for the answer any more.
        let _ = who.send(last.clone());
    }
}
