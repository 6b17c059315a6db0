//! Draws the state of the view. The picture depends only on the state and the time.

mod columns;

use self::columns::{COLUMNS, Column, Fitted, GAP, middle, start, width};
use super::state::{Sort, Watched};
use crate::seeing::model::{Health, Table as Standing};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};
use std::time::{Duration, Instant};
use trickle_engine::words::{count, duration};

/// The number of lines with details of the chosen row, if the screen is high enough.
const TOLD: u16 = 9;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, watched: &Watched, now: Instant) {
    let area = frame.area();
    let told = if area.height >= 18 { TOLD } else { 0 };
    let fitted = fitted(watched.tables(), area.width);
    let missing = missing(&fitted, area.width).filter(|_| !watched.tables().is_empty());
    let [head, body, note, about, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(u16::from(missing.is_some())),
        Constraint::Length(told),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(heading(watched, now, area.width), head);
    rows(frame, body, watched, &fitted);
    if let Some(missing) = missing {
        frame.render_widget(missing, note);
    }
    if told > 0 {
        frame.render_widget(about_chosen(watched.chosen(), &fitted, area.width), about);
    }
    frame.render_widget(keys(watched.sort, area.width), foot);
}

fn tone(health: Health) -> Style {
    let style = Style::new();
    match health {
        Health::Fresh => style.fg(Color::Green),
        Health::Due => style.fg(Color::Cyan),
        Health::Manual => style.fg(Color::DarkGray),
        Health::Late => style.fg(Color::Yellow),
        Health::Failed => style.fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

/// Draws the heading: the database, the number of stream tables of each health, the refresher, and any
/// problem.
fn heading(watched: &Watched, now: Instant, room: u16) -> Paragraph<'static> {
    let counts = Health::ALL.into_iter().rev().filter_map(|health| {
        let n = watched.tables().iter().filter(|t| t.health == health).count();
        (n > 0).then(|| Span::styled(format!("  {n} {}", health.word()), tone(health)))
    });
    let counts: Vec<Span<'static>> = counts.collect();
    let taken = counts.iter().map(|c| width(&c.content)).fold(width("trickle "), u16::saturating_add);
    let what = middle(&watched.what, room.saturating_sub(taken));
    let first = ["trickle ".bold(), what.into()].into_iter().chain(counts);
    let (second, style) = news(watched, now);
    Paragraph::new(vec![first.collect::<Line<'_>>(), Line::styled(start(&second, room), style)])
}

/// Describes the worst problem of the view, of the database or of the refresher. If there is no problem,
/// describes the age of the shown state.
fn news(watched: &Watched, now: Instant) -> (String, Style) {
    let (bad, odd, fine) = (tone(Health::Failed), tone(Health::Late), Style::new().dim());
    let age = watched.read.map(|at| now.duration_since(at));
    match (&watched.trouble, age, &watched.snapshot) {
        (Some(why), Some(age), _) => {
            (format!("no news for {}, trying again: {}", seconds(age), one_line(why)), bad)
        }
        (Some(why), None, _) => (format!("no answer yet, trying again: {}", one_line(why)), bad),
        (None, Some(_), Some(s)) if s.open.iter().any(|o| o.long) => {
            let oldest = s.open.first().map(|o| o.told.as_str()).unwrap_or_default();
            (format!("nothing old can be removed while a transaction is {oldest}"), odd)
        }
        (None, Some(age), Some(s)) if s.refresher.is_running() => {
            (format!("a refresher is at work; read {} ago", seconds(age)), fine)
        }
        (None, Some(_), _) => ("no refresher is running: trickle run is one".to_owned(), odd),
        (None, None, _) => ("asking the database …".to_owned(), fine),
    }
}

fn seconds(d: Duration) -> String {
    if d.as_secs() < 60 { format!("{} s", d.as_secs()) } else { duration(Duration::from_secs(d.as_secs())) }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Divides the width of the screen among the columns, by the longest value of each column in all rows.
fn fitted(tables: &[Standing], room: u16) -> Fitted {
    let widest =
        |text: &dyn Fn(&Standing) -> String| tables.iter().map(|t| width(&text(t))).max().unwrap_or(0);
    let names = widest(&|t| t.name.clone()).max(width(NAME));
    Fitted::new(names, COLUMNS.each_ref().map(|c| widest(&c.text)), room)
}

const NAME: &str = "stream table";

fn rows(frame: &mut Frame<'_>, area: Rect, watched: &Watched, fitted: &Fitted) {
    let tables = watched.tables();
    if tables.is_empty() {
        let text = if watched.snapshot.is_some() {
            "there is no stream table; trickle create makes one"
        } else {
            ""
        };
        frame.render_widget(Paragraph::new(text).dim(), area);
        return;
    }
    let shown = || COLUMNS.iter().zip(fitted.widths).filter_map(|(c, w)| Some((c, w?)));
    let widths = std::iter::once(fitted.name).chain(shown().map(|(_, w)| w)).map(Constraint::Length);
    let rows = tables.iter().map(|t| {
        let cell = |c: &Column| Cell::from(Line::styled((c.text)(t), (c.tone)(t)).alignment(c.side));
        let name = Cell::from(middle(&t.name, fitted.name));
        Row::new(std::iter::once(name).chain(shown().map(|(c, _)| cell(c))))
    });
    let head = shown().map(|(c, _)| Cell::from(Line::from(c.head).alignment(c.side)));
    let head = std::iter::once(Cell::from(middle(NAME, fitted.name))).chain(head);
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(GAP);
    let mut state = TableState::default().with_selected(Some(watched.row()));
    // The chosen row is in the middle of the screen, if there are enough rows above and below. So the rows
    // around it are visible.
    let room = usize::from(area.height.saturating_sub(1));
    *state.offset_mut() = watched.row().saturating_sub(room / 2).min(tables.len().saturating_sub(room));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Describes how many columns are left out, with the names of these columns if the line has room.
fn missing(fitted: &Fitted, room: u16) -> Option<Paragraph<'static>> {
    let heads: Vec<&str> = fitted.left_out().map(|c| c.head).collect();
    let few = match heads.len() {
        0 => return None,
        1 => "1 column is left out".to_owned(),
        n => format!("{n} columns are left out"),
    };
    let all = format!("{few}: {}", heads.join(", "));
    Some(Paragraph::new(if width(&all) <= room { all } else { few }).dim())
}

/// Describes why the chosen stream table is in its state, and the values of the columns that have no room.
fn about_chosen(chosen: Option<&Standing>, fitted: &Fitted, room: u16) -> Paragraph<'static> {
    let Some(t) = chosen else { return Paragraph::new("") };
    let label = |what: &str, text: String, style: Style| {
        Line::from(vec![Span::from(format!("{what}: ")).dim(), Span::styled(text, style)])
    };
    let plain = Style::new();
    let title = format!(" {} ", middle(&t.name, room.saturating_sub(2)));
    let mut lines = Vec::new();
    if !title.contains(&t.name) {
        lines.push(label("name", t.name.clone(), plain));
    }
    if let Some(error) = &t.last_error {
        let what = if t.consecutive_errors > 0 { "last error" } else { "last error, overcome since" };
        lines.push(label(
            what,
            one_line(error),
            if t.consecutive_errors > 0 { tone(Health::Failed) } else { plain },
        ));
    }
    lines.extend(t.remarks.iter().map(|r| label("note", r.clone(), tone(Health::Late))));
    if let Some(reason) = &t.mode_reason {
        lines.push(label("not incremental", one_line(reason), plain));
    }
    let pending = t.pending_changes.and_then(|n| usize::try_from(n).ok());
    let pending = pending.map_or_else(|| "not known".to_owned(), |n| count(n, "row", "rows"));
    lines.push(label("schedule", format!("{}; pending: {pending}", t.schedule()), plain));
    if let Some(rows) =
        t.last_refresh.as_ref().and_then(|l| l.delta_rows).and_then(|n| usize::try_from(n).ok())
    {
        let took =
            format!("{} of changes read, {} written, in {}", count(rows, "row", "rows"), t.rows(), t.cost());
        lines.push(label("last refresh", took, plain));
    }
    let others: Vec<String> = fitted.left_out().map(|c| format!("{} {}", c.head, (c.text)(t))).collect();
    if !others.is_empty() {
        lines.push(label("left out above", others.join("; "), plain));
    }
    lines.push(label("reads", t.sources.join(", "), plain));
    let title = Span::styled(title, tone(t.health));
    Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::new().borders(Borders::TOP).title(title))
}

/// Draws the help for the keys. The key of an order is the underlined first letter of the order's name.
fn keys(sort: Sort, room: u16) -> Paragraph<'static> {
    let long = [("q", " quit  "), ("↑↓", " choose  "), ("r", " read now  "), ("", "sort by:")];
    let short = [("q", " quit "), ("↑↓", " "), ("r", " read "), ("", "sort:")];
    let line = |words: [(&'static str, &'static str); 4]| {
        let mut line: Vec<Span<'static>> =
            words.into_iter().flat_map(|(key, does)| [key.bold(), does.into()]).collect();
        for (by, _, name) in Sort::ALL {
            let (key, rest) = name.split_at(1);
            let shown = if by == sort { Style::new().reversed() } else { Style::new() };
            line.extend([
                " ".into(),
                Span::styled(key, shown.bold().underlined()),
                Span::styled(rest, shown),
            ]);
        }
        Line::from(line)
    };
    let line = if line(long).width() <= usize::from(room) { line(long) } else { line(short) };
    Paragraph::new(line).dim()
}

#[cfg(test)]
mod tests;
