//! The status page: one document that loads nothing from other servers. The template of the page escapes all
//! texts that it shows.

use super::model::{Health, Snapshot, Table, bytes};
use super::picture;
use super::reader::View;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest::{SHA256, digest};
use trickle_client::Activity;
use trickle_engine::words::{count, duration};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
const ICON: &str = include_str!("page/icon.svg");

/// Returns the policy that a browser enforces for the page. The policy allows only the page's own style and
/// script, and requests to this server.
pub(super) fn policy() -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())));
    format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
}

/// Renders the page of a database. `connected` says whether the refresher is connected to the database. In a
/// browser without scripts the page reloads itself.
pub(super) fn render(database: &str, connected: bool, view: &View) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title(view)) (database) " · trickle" }
                link rel="icon" href={ "data:image/svg+xml;base64," (STANDARD.encode(ICON)) };
                noscript { meta http-equiv="refresh" content="5"; }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "trickle" }
                    p.database { (name(database)) }
                    p #answer .answer role="status" {}
                }
                main #live { (live(connected, view)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Returns the beginning of the page's title, for the tab of a browser: the number of stream tables that are
/// late or failed.
fn title(view: &View) -> String {
    let Some(snapshot) = &view.snapshot else { return "? ".to_owned() };
    let bad = snapshot.tables.iter().filter(|t| t.health >= Health::Late).count();
    if bad > 0 { format!("({bad}) ") } else { String::new() }
}

fn live(connected: bool, view: &View) -> Markup {
    html! {
        @if let Some(trouble) = &view.trouble {
            p.trouble {
                strong { "No news from the database: " } (trouble)
                @if view.snapshot.is_some() { ". Below is how it stood " (duration(view.age)) " ago." }
            }
        } @else if !connected {
            p.trouble { strong { "The refresher is not connected." } " Nothing is refreshed on schedule." }
        }
        @match &view.snapshot {
            None => p.empty { "Nothing is known of the stream tables yet." },
            Some(now) if now.tables.is_empty() => p.empty { "There is no stream table; " code { "trickle create" } " makes one." },
            Some(now) => { (summary(now)) (graph(now)) (tables(now)) (errors(now)) (buffers(now)) },
        }
    }
}

fn summary(now: &Snapshot) -> Markup {
    html! {
        ul.summary {
            li { b { (now.tables.len()) } " stream tables" }
            @for health in Health::ALL.into_iter().rev() {
                @let n = now.tables.iter().filter(|t| t.health == health).count();
                @if n > 0 { li.(health.word()) { i.dot {} b { (n) } " " (health.word()) } }
            }
            li { b { (bytes(now.buffers.iter().map(|b| b.bytes).sum())) } " buffered" }
        }
        @for o in now.open.iter().filter(|o| o.long) {
            p.trouble {
                strong { "A transaction is " (o.told) "." }
                " While it is open, old rows and changes that were applied cannot be removed. "
                code { "SELECT pg_terminate_backend(" (o.pid) ")" } " ends it."
            }
        }
    }
}

fn graph(now: &Snapshot) -> Markup {
    html! {
        section {
            h2 { "Who reads whom" }
            div.picture { (picture::draw(now)) }
            ul.legend {
                li.source { i.dot {} "source" }
                @for (health, meaning) in [
                    (Health::Fresh, "shows all that was committed"),
                    (Health::Due, "its time has not come"),
                    (Health::Late, "behind its schedule"),
                    (Health::Failed, "failed or suspended"),
                    (Health::Manual, "waits for a refresh by hand"),
                ] {
                    li.(health.word()) { i.dot {} (health.word()) ": " (meaning) }
                }
            }
        }
    }
}

/// The headings of the columns beside the names, with the CSS classes of the columns. In a narrow window a
/// row is a card, and each value on the card comes after its heading.
const COLUMNS: [(&str, Option<&str>); 10] = [
    ("health", Some("health")),
    ("mode", None),
    ("schedule", None),
    ("behind", Some("number short")),
    ("pending", Some("number short")),
    ("last refresh", None),
    ("rows", Some("number")),
    ("cost", Some("number short")),
    ("buffers", Some("number short")),
    ("errors", Some("number short")),
];

fn tables(now: &Snapshot) -> Markup {
    html! {
        section {
            h2 { "Stream tables" }
            div.wide {
                table.cards {
                    thead { tr {
                        th scope="col" { "stream table" }
                        @for (head, class) in COLUMNS { th class=[class] scope="col" { (head) } }
                    } }
                    tbody { @for t in &now.tables { (row(t)) } }
                }
            }
        }
    }
}

fn row(t: &Table) -> Markup {
    let pending = t.pending_changes.map_or_else(|| "–".to_owned(), |n| n.to_string());
    let mode = html! {
        span title=[t.mode_reason.as_deref()] {
            (t.mode) @if t.mode_reason.is_some() { " " span.why { "?" } }
        }
    };
    let values = [
        html! { i.dot {} (t.health.word()) @if t.status != Activity::Active { " " small { (t.status) } } },
        mode,
        html! { (t.schedule()) },
        html! { (t.behind()) },
        html! { (pending) },
        html! { (t.last()) },
        html! { (t.rows()) },
        html! { (t.cost()) },
        html! { (bytes(t.buffer_bytes)) },
        html! { (t.consecutive_errors) },
    ];
    html! {
        tr.(t.health.word()) {
            th scope="row" { (name(&t.name)) }
            @for ((head, class), value) in COLUMNS.into_iter().zip(values) {
                td class=[class] data-head=(head) { (value) }
            }
        }
    }
}

/// Renders a name, which may wrap after a dot or an underscore.
fn name(name: &str) -> Markup {
    html! { @for part in name.split_inclusive(['.', '_']) { (part) @if part.ends_with(['.', '_']) { wbr; } } }
}

/// Renders the last errors of stream tables, and remarks on stream tables.
fn errors(now: &Snapshot) -> Markup {
    let any = |t: &&Table| t.last_error.is_some() || !t.remarks.is_empty();
    let told: Vec<&Table> = now.tables.iter().filter(any).collect();
    html! {
        @if !told.is_empty() {
            section {
                h2 { "Last errors, and what else to know" }
                dl {
                    @for t in told {
                        dt.(t.health.word()) { i.dot {} (name(&t.name)) }
                        @if let Some(error) = &t.last_error {
                            dd {
                                pre { (error) }
                                p.note {
                                    @if t.status == Activity::Suspended { "It is suspended; trickle alter --resume goes on." }
                                    @else if t.consecutive_errors > 0 {
                                        (count(usize::try_from(t.consecutive_errors).unwrap_or(0), "failure", "failures"))
                                        " in a row."
                                    }
                                    @else { "Refreshes have succeeded since." }
                                }
                            }
                        }
                        @for remark in &t.remarks { dd { (remark) } }
                    }
                }
            }
        }
    }
}

fn buffers(now: &Snapshot) -> Markup {
    html! {
        @if !now.buffers.is_empty() {
            section {
                h2 { "Change buffers" }
                div.wide {
                    table.few {
                        thead { tr {
                            th scope="col" { "source" } th scope="col" { "capture" }
                            th.number scope="col" { "size" } th.number scope="col" { "limit" }
                        } }
                        tbody { @for b in &now.buffers { tr {
                            th scope="row" { (name(&b.source)) }
                            td { @if b.captured { "on" } @else { "off" } }
                            td.number.short { (bytes(b.bytes)) }
                            td.number.short { (bytes(b.limit_bytes)) }
                        } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
