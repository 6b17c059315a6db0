//! Draws what is watched: nothing but the state and the time decides what stands where.

use super::state::{Sort, Watched};
use crate::output::{count, duration};
use crate::seeing::model::{Health, Table as Standing, bytes};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};
use std::time::{Duration, Instant};

/// How many lines tell about the chosen row, where there is room.
const TOLD: u16 = 9;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, watched: &Watched, now: Instant) {
    let told = if frame.area().height >= 18 { TOLD } else { 0 };
    let [head, body, about, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(told),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(watched, now), head);
    rows(frame, body, watched);
    if told > 0 {
        frame.render_widget(about_chosen(watched.chosen()), about);
    }
    frame.render_widget(keys(watched.sort), foot);
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

/// Which database, how many of each health, who refreshes, and what is in the way.
fn heading(watched: &Watched, now: Instant) -> Paragraph<'static> {
    let mut first = vec!["trickle ".bold(), watched.what.clone().into(), "  ".into()];
    for health in Health::ALL.into_iter().rev() {
        let n = watched.tables().iter().filter(|t| t.health == health).count();
        if n > 0 {
            first.push(Span::styled(format!("{n} {}  ", health.word()), tone(health)));
        }
    }
    let age = watched.read.map(|at| now.duration_since(at));
    let second = match (&watched.trouble, age, &watched.snapshot) {
        (Some(why), Some(age), _) => {
            let old = format!("no news for {}, trying again: ", seconds(age));
            Line::from(vec![old.red().bold(), one_line(why).red()])
        }
        (Some(why), None, _) => Line::from(format!("no answer yet, trying again: {}", one_line(why)).red()),
        (None, Some(_), Some(s)) if s.open.iter().any(|o| o.long) => {
            let oldest = s.open.first().map(|o| o.told.clone()).unwrap_or_default();
            Line::from(format!("nothing old can be removed while a transaction is {oldest}").yellow())
        }
        (None, Some(age), Some(s)) if s.refresher.is_running() => {
            Line::from(format!("a refresher is at work; read {} ago", seconds(age)).dim())
        }
        (None, Some(_), _) => Line::from("no refresher is running: trickle run is one".yellow()),
        (None, None, _) => Line::from("asking the database …".dim()),
    };
    Paragraph::new(vec![Line::from(first), second])
}

fn seconds(d: Duration) -> String {
    if d.as_secs() < 60 { format!("{} s", d.as_secs()) } else { duration(Duration::from_secs(d.as_secs())) }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const HEAD: [&str; 9] =
    ["stream table", "mode", "status", "lag", "last refresh", "rows", "cost", "buffers", "errors"];

fn rows(frame: &mut Frame<'_>, area: Rect, watched: &Watched) {
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
    let cells: Vec<[String; 9]> = tables.iter().map(texts).collect();
    let widest = |column: usize| {
        let longest = cells.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        u16::try_from(longest.max(HEAD[column].chars().count())).unwrap_or(u16::MAX)
    };
    // Names give way first: the rest is short.
    let widths = (0..9).map(|c| if c == 0 { Constraint::Min(12) } else { Constraint::Length(widest(c)) });
    let rows = tables.iter().zip(&cells).map(|(t, texts)| {
        let cell = |(column, text): (usize, &String)| {
            let style = match column {
                2 | 3 => tone(t.health),
                8 if t.consecutive_errors > 0 => tone(Health::Failed),
                _ => Style::new(),
            };
            Cell::from(Line::styled(text.clone(), style).alignment(side(column)))
        };
        Row::new(texts.iter().enumerate().map(cell))
    });
    let head = HEAD.iter().enumerate().map(|(c, h)| Cell::from(Line::from(*h).alignment(side(c))));
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(2);
    let mut state = TableState::default().with_selected(Some(watched.row()));
    // The chosen row stands in the middle as far as the ends allow, so that what is around it is seen.
    let room = usize::from(area.height.saturating_sub(1));
    *state.offset_mut() = watched.row().saturating_sub(room / 2).min(tables.len().saturating_sub(room));
    frame.render_stateful_widget(table, area, &mut state);
}

fn texts(t: &Standing) -> [String; 9] {
    let status = if t.status == "ACTIVE" { t.health.word().to_owned() } else { t.status.clone() };
    [
        t.name.clone(),
        t.mode.clone(),
        status,
        t.behind(),
        t.last(),
        t.rows(),
        t.cost(),
        bytes(t.buffer_bytes),
        t.consecutive_errors.to_string(),
    ]
}

/// Numbers stand to the right.
fn side(column: usize) -> Alignment {
    if matches!(column, 3 | 5..=8) { Alignment::Right } else { Alignment::Left }
}

/// Why it is as it is.
fn about_chosen(chosen: Option<&Standing>) -> Paragraph<'static> {
    let Some(t) = chosen else { return Paragraph::new("") };
    let label = |what: &str, text: String, style: Style| {
        Line::from(vec![Span::from(format!("{what}: ")).dim(), Span::styled(text, style)])
    };
    let plain = Style::new();
    let mut lines = Vec::new();
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
    lines.push(label("reads", t.sources.join(", "), plain));
    let title = Span::styled(format!(" {} ", t.name), tone(t.health));
    Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::new().borders(Borders::TOP).title(title))
}

fn keys(sort: Sort) -> Paragraph<'static> {
    let mut line = vec![
        "q".bold(),
        " quit  ".into(),
        "↑↓".bold(),
        " choose  ".into(),
        "r".bold(),
        " read now  sort by: ".into(),
    ];
    for (by, key, name) in Sort::ALL {
        let name = name.to_owned();
        let shown = if by == sort { name.reversed() } else { name.into() };
        line.extend([key.to_string().bold(), " ".into(), shown, "  ".into()]);
    }
    Paragraph::new(Line::from(line)).dim()
}

#[cfg(test)]
mod tests;
