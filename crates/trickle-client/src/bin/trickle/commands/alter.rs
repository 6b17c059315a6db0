//! `trickle alter`

use super::create::{Consistency, Mode, notice, schedule_of};
use super::status::one_line;
use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::query::{Source, Typed};
use crate::server;
use serde_json::json;
use trickle_client::registry::Entry;
use trickle_client::{Alteration, Name};

/// Change a stream table: its query, schedule or mode, or whether it is refreshed on schedule.
///
/// A new query or mode fills the stream table again. Its indexes, grants and comments stay, and so do the
/// views on it.
///
/// Exit code 2: the change is not possible; nothing was changed.
#[derive(Debug, clap::Args)]
pub(crate) struct Alter {
    /// Name of the stream table.
    #[arg(add = super::completions::stream_tables())]
    name: String,
    #[command(flatten)]
    query: Source,
    /// New schedule: a duration, a cron line, calculated, or manual.
    #[arg(long, value_name = "S", conflicts_with = "no_schedule")]
    schedule: Option<String>,
    /// Refresh the stream table by hand only; the same as --schedule manual.
    #[arg(long)]
    no_schedule: bool,
    /// New refresh mode.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Whether the stream table shows the same state as the stream tables that it reads.
    #[arg(long, value_enum, value_name = "WHICH")]
    diamond_consistency: Option<Consistency>,
    /// Stop refreshing the stream table on schedule, until it is resumed.
    #[arg(long, conflicts_with = "resume")]
    suspend: bool,
    /// Refresh the stream table on schedule again, also after failures suspended it.
    #[arg(long)]
    resume: bool,
}

impl Run for Alter {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let name = Name::parse(&self.name)?;
        let typed = self.query.read()?;
        let schedule = self.schedule.map(|s| schedule_of(&s)).transpose();
        let schedule = schedule.map_err(trickle_client::Error::from)?;
        let wanted = Alteration {
            query: typed.as_ref().map(|t| t.text().to_owned()),
            schedule: if self.no_schedule { Some(None) } else { schedule },
            mode: self.mode.map(Into::into),
            apart: self.diamond_consistency.map(Consistency::is_apart),
            suspended: (self.suspend || self.resume).then_some(self.suspend),
        };
        if wanted == Alteration::default() {
            return Err(Failure::input(format!("nothing is said of what to change of {name}"))
                .hint("trickle alter --help lists what can be."));
        }
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin(format!("altering {name}"));
        let there = if typed.is_none() { Some(trickle.find(&name).await?) } else { None };
        let query = |e: &Entry| Typed::new(&name.to_string(), e.query.clone());
        let Some(typed) = typed.or(there.as_ref().map(query)) else {
            return Err(Failure::input("there is no query"));
        };
        let done = trickle.alter(&name, &wanted).await.map_err(|e| typed.refused(e))?;
        let now = trickle.status(std::slice::from_ref(&name)).await?;
        drop(trickle);
        drop(meter);
        if done.made && done.mode == trickle_client::Mode::Full && self.mode.is_none_or(|m| m == Mode::Auto) {
            notice(&done, &typed, output);
        }
        if output.is_json() {
            output.document(&json!(now.first()));
        } else if !output.is_quiet() {
            for s in &now {
                output.print(one_line(s));
            }
        }
        Ok(Answer::Yes)
    }
}
