//! Connects to a database with stream tables.

use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Meter;
use std::sync::Arc;
use trickle_client::{Name, Session, Trickle, connections};

/// Connects to the database that the options and the environment name. The database must have a catalog.
pub(crate) async fn open(output: &Output) -> Result<(Trickle, Arc<Meter>), Failure> {
    let settings = output.settings()?.settings();
    let target = output.target()?;
    let session = Session::new(target.connect().await?).alone();
    let meter = Arc::new(Meter::new(output.is_quiet()));
    let trickle = Trickle::open(session, settings).await?;
    Ok((trickle.with_progress(meter.clone()).with_connections(connections(Arc::new(target))), meter))
}

/// Connects as [`open`] does, but does not require a catalog in the database.
pub(crate) async fn attach(output: &Output) -> Result<(Trickle, Arc<Meter>), Failure> {
    let settings = output.settings()?.settings();
    let session = Session::new(output.target()?.connect().await?);
    let meter = Arc::new(Meter::new(output.is_quiet()));
    let trickle = Trickle::attach(session, settings).await?;
    Ok((trickle.with_progress(meter.clone()), meter))
}

/// Parses the names of stream tables from the command line.
pub(crate) fn names(typed: &[String]) -> Result<Vec<Name>, Failure> {
    Ok(typed.iter().map(|t| Name::parse(t)).collect::<Result<_, _>>()?)
}
