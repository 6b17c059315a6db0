//! `trickle check`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::{Output, Tone};
use crate::server;
use serde_json::{Value, json};
use trickle_client::Checked;
use trickle_client::registry::Entry;
use trickle_engine::words::count;

/// Compare stream tables with their queries, row by row.
///
/// Each stream table is brought up to date first, and then compared with its query in the same snapshot;
/// nobody is kept from writing meanwhile. Without a name, all stream tables of the current role are checked.
///
/// Some differences do not count. The last digits of sums of floats depend on the order in which the server
/// reads rows. So does the order of lists that the query builds in any order, such as array_agg(x) without
/// ORDER BY. Of such lists, the elements of arrays and the characters of texts are compared.
///
/// Exit code 1: a stream table differs, or could not be compared; the rows that differ are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Stream tables to check [default: all of the current role].
    #[arg(add = super::completions::stream_tables())]
    names: Vec<String>,
    /// Check all stream tables of the current role.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Number of differing rows to show for each stream table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
}

impl Run for Check {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let names = server::names(&self.names)?;
        let (mut trickle, meter) = server::open(output).await?;
        let mut entries: Vec<Entry> = Vec::new();
        for name in &names {
            entries.push(trickle.find(name).await?);
        }
        if names.is_empty() {
            entries = trickle.registry().await?.entries().filter(|e| e.own).cloned().collect();
        }
        let (mut found, mut answer) = (Vec::new(), Answer::Yes);
        for e in &entries {
            meter.begin(format!("checking {}.{}", e.relation.schema, e.relation.name));
            match trickle.check(e, self.rows).await {
                Ok(checked) => found.push(checked),
                Err(e) if e.is_connection() || entries.len() == 1 => return Err(e.into()),
                Err(e) => {
                    output.fail(&Failure::from(e));
                    answer = Answer::No;
                }
            }
        }
        drop(trickle);
        drop(meter);
        show(&found, output);
        Ok(if found.iter().any(|c| c.different > 0) { Answer::No } else { answer })
    }
}

fn document(c: &Checked) -> Value {
    let difference =
        |d: &trickle_client::Difference| json!({"row": d.row, "stored": d.stored, "expected": d.expected});
    json!({"name": c.name, "equal": c.different == 0, "rows": c.rows, "different": c.different, "rounded": c.rounded,
        "differences": c.differences.iter().map(difference).collect::<Vec<_>>()})
}

fn show(found: &[Checked], output: &mut Output) {
    if output.is_json() {
        output.document(&found.iter().map(document).collect());
        return;
    }
    let shown = found.iter().filter(|c| !output.is_quiet() || c.different > 0);
    let times = |n: i64, one: &str, many: &str| count(usize::try_from(n).unwrap_or(0), one, many);
    let row = |c: &Checked| {
        let (word, tone) = match (c.different, c.rounded) {
            (0, 0) => ("equal".to_owned(), Tone::Good),
            (0, n) => (
                format!("equal but for the last digits of sums of floats in {}", times(n, "row", "rows")),
                Tone::Good,
            ),
            (n, _) => (times(n, "row differs", "rows differ"), Tone::Bad),
        };
        [(c.name.clone(), None), (c.rows.to_string(), None), (word, Some(tone))]
    };
    let rows: Vec<_> = shown.map(row).collect();
    if !rows.is_empty() {
        output.table(["stream table", "rows", "result"], rows);
    }
    for c in found.iter().filter(|c| c.different > 0) {
        output.print(format!("\n{}\n", c.name));
        let times = |n: i64| if n == 1 { "once".to_owned() } else { format!("{n} times") };
        for d in &c.differences {
            let (stored, expected) = (times(d.stored), times(d.expected));
            output.print(format!("  {}  stored {stored}, the query gives it {expected}\n", d.row));
        }
    }
}
