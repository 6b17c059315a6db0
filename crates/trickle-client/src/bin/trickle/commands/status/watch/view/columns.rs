//! Decides which columns are shown, and how wide each is. A value is shown whole, or its column is left out.

use super::tone;
use crate::seeing::model::{Health, Table, bytes};
use ratatui::layout::Alignment;
use ratatui::style::Style;
use ratatui::text::Span;
use trickle_client::Activity;

/// The width of the gap between two columns.
pub(super) const GAP: u16 = 2;

/// A column beside the names.
pub(super) struct Column {
    pub(super) head: &'static str,
    /// The alignment of values. Numbers are aligned on the right.
    pub(super) side: Alignment,
    /// The least width, even if all values are shorter. Otherwise columns would come and go as ages grow.
    usual: u16,
    /// The rank, which is 0 for the most important column. A column is shown if it has room beside the
    /// columns of lower rank.
    rank: u8,
    pub(super) text: fn(&Table) -> String,
    pub(super) tone: fn(&Table) -> Style,
}

const fn column(
    head: &'static str,
    side: Alignment,
    usual: u16,
    rank: u8,
    text: fn(&Table) -> String,
    tone: fn(&Table) -> Style,
) -> Column {
    Column { head, side, usual, rank, text, tone }
}

/// All columns, from left to right.
pub(super) const COLUMNS: [Column; 8] = [
    column("mode", Alignment::Left, 12, 6, |t| t.mode.to_string(), plain),
    column("status", Alignment::Left, 9, 0, status, |t| tone(t.health)),
    column("lag", Alignment::Right, 10, 1, Table::behind, |t| tone(t.health)),
    column("last refresh", Alignment::Left, 28, 5, Table::last, plain),
    column("rows", Alignment::Right, 8, 7, Table::rows, plain),
    column("cost", Alignment::Right, 9, 4, Table::cost, plain),
    column("buffers", Alignment::Right, 10, 3, |t| bytes(t.buffer_bytes), plain),
    column("errors", Alignment::Right, 6, 2, |t| t.consecutive_errors.to_string(), failures),
];

fn plain(_: &Table) -> Style {
    Style::new()
}

fn failures(t: &Table) -> Style {
    if t.consecutive_errors > 0 { tone(Health::Failed) } else { Style::new() }
}

fn status(t: &Table) -> String {
    if t.status == Activity::Active { t.health.word().to_owned() } else { t.status.to_string() }
}

/// The division of a line's width among the columns.
#[derive(Debug)]
pub(super) struct Fitted {
    /// The width that is left for names. A longer name is shortened to this width.
    pub(super) name: u16,
    /// The width of each column; `None` if the column is left out.
    pub(super) widths: [Option<u16>; COLUMNS.len()],
}

impl Fitted {
    /// Divides the width of a line. Names have at least 20 columns of the terminal, or a quarter of the line
    /// if a quarter is more. If all names are shorter, names have the width of the longest name.
    pub(super) fn new(names: u16, values: [u16; COLUMNS.len()], room: u16) -> Fitted {
        let mut left = room.saturating_sub(names.min((room / 4).max(20)));
        let mut widths = [None; COLUMNS.len()];
        let mut order: Vec<usize> = (0..COLUMNS.len()).collect();
        order.sort_by_key(|at| COLUMNS[*at].rank);
        for at in order {
            let own = values[at].max(width(COLUMNS[at].head)).max(COLUMNS[at].usual);
            if let Some(rest) = left.checked_sub(own.saturating_add(GAP)) {
                (left, widths[at]) = (rest, Some(own));
            }
        }
        let taken: u16 = widths.iter().flatten().map(|w| w + GAP).sum();
        Fitted { name: names.min(room.saturating_sub(taken)), widths }
    }

    /// Returns the columns that are left out, from left to right.
    pub(super) fn left_out(&self) -> impl Iterator<Item = &'static Column> {
        COLUMNS.iter().zip(self.widths).filter(|(_, w)| w.is_none()).map(|(c, _)| c)
    }
}

/// Returns how many columns of the terminal a text takes.
pub(super) fn width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Shortens a name to this width with … in its middle, since names differ at both ends.
pub(super) fn middle(text: &str, room: u16) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let start = prefix(text.chars(), kept.div_ceil(2));
    let end: Vec<char> = prefix(text.chars().rev(), kept / 2);
    start.into_iter().chain(['…']).chain(end.into_iter().rev()).collect()
}

/// Shortens a text to this width with … at its end, since the beginning of a sentence matters most.
pub(super) fn start(text: &str, room: u16) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    prefix(text.chars(), room.saturating_sub(1)).into_iter().chain(['…']).collect()
}

/// Returns the first letters of `of`, as many as fit into this width.
fn prefix(of: impl Iterator<Item = char>, room: u16) -> Vec<char> {
    let fits = |taken: &mut u16, c: char| {
        *taken = taken.saturating_add(width(c.encode_utf8(&mut [0; 4])));
        (*taken <= room).then_some(c)
    };
    of.scan(0, fits).collect()
}
