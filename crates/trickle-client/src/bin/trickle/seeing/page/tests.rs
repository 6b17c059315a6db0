//! Catches names and texts of errors that become markup, and facts that the page does not show.

use super::*;
use crate::seeing::model::tests::{behind, open, several, snapshot, status};
use std::sync::Arc;
use std::time::Duration;

/// Renders the page, without the marks at which names may wrap.
fn page(view: &View, connected: bool) -> String {
    render("sh<b>op", connected, view).replace("<wbr>", "")
}

fn view() -> View {
    View { snapshot: Some(Arc::new(snapshot(&several()))), ..View::default() }
}

/// Returns the part of the page from a stream table's name to the end of its row.
fn row<'p>(page: &'p str, name: &str) -> &'p str {
    let start =
        page.find(&format!("<th scope=\"row\">{name}</th>")).unwrap_or_else(|| panic!("{name}: {page}"));
    &page[start..start + page[start..].find("</tr>").unwrap()]
}

#[test]
fn what_users_named_is_text() {
    let page = page(&view(), true);
    assert_eq!(page.matches("<script>").count(), 1, "the page's own");
    assert!(page.contains("&lt;script&gt;") && page.contains("sh&lt;b&gt;op"));
    assert!(page.contains("division by &lt;zero&gt;"));
    let titled = page.contains("title=\"last_value() is not kept\"");
    assert!(titled, "why it is not incremental");
}

#[test]
fn nothing_comes_from_elsewhere() {
    let page = page(&view(), true);
    let links: Vec<&str> =
        page.match_indices("http").map(|(i, _)| &page[i..(i + 40).min(page.len())]).collect();
    // Two links are no requests: the name of the picture's format, and the header that reloads the page.
    let known = |l: &&str| l.starts_with("http://www.w3.org/2000/svg") || l.starts_with("http-equiv");
    assert!(links.iter().all(known), "{links:?}");
    assert!(!page.contains(" src=") && !page.contains("style=") && !page.contains(" on"), "inline code");
    let policy = policy();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
}

#[test]
fn each_stream_table_is_told_in_its_row() {
    let page = page(&view(), true);
    for told in
        ["failed", "DIFFERENTIAL", "9.0 s", "3 s ago, DIFFERENTIAL", "+3 ~1 -0", "12 ms", "8.0 KiB", ">3<"]
    {
        assert!(row(&page, "s_failed").contains(told), "{told}: {}", row(&page, "s_failed"));
    }
    assert!(row(&page, "s_late").contains("1 min 5 s") && row(&page, "s_both").contains("fresh"));
    assert!(page.contains("<title>(2) sh"), "how many are late or failed");
    assert!(page.find("s_failed</th>").unwrap() < page.find("s_left</th>").unwrap(), "the worst first");
}

/// Catches names that are cut, or that run out of a narrow page.
#[test]
fn names_on_the_status_page_wrap_at_dots_and_underscores() {
    let mut now = snapshot(&[status("sales.by_<region>", &["sales.orders_of_2026"])]);
    now.buffers[0].source = "sales.orders_of_2026".into();
    now.tables[0].remarks = vec!["waits".into()];
    let page = render("shop_eu", true, &View { snapshot: Some(Arc::new(now)), ..View::default() });
    let told = "sales.<wbr>by_<wbr>&lt;region&gt;";
    assert_eq!(page.matches(told).count(), 2, "its row, and what is worth knowing: {page}");
    assert!(page.contains("<th scope=\"row\">sales.<wbr>orders_<wbr>of_<wbr>2026</th>"), "{page}");
    assert!(!STYLE.contains("ellipsis") && !STYLE.contains("overflow: hidden"));
}

/// Catches a value without its heading on a card, since a narrow window shows no headings above columns.
#[test]
fn each_value_of_a_status_page_row_has_its_heading() {
    let page = page(&view(), true);
    let row = row(&page, "s_failed");
    for (head, _) in COLUMNS {
        assert!(row.contains(&format!("data-head=\"{head}\"")), "{head}: {row}");
        assert!(page.contains(&format!("scope=\"col\">{head}</th>")), "{head}");
    }
    assert_eq!(row.matches("<td").count(), COLUMNS.len());
    let (_, narrow) = STYLE.split_once("@media (max-width:").unwrap();
    assert!(narrow.contains("content: attr(data-head)"), "{narrow}");
}

#[test]
fn the_status_page_has_an_icon_its_policy_permits() {
    let page = page(&view(), true);
    let (_, icon) = page.split_once("<link rel=\"icon\" href=\"data:image/svg+xml;base64,").unwrap();
    let icon = STANDARD.decode(icon.split('"').next().unwrap()).unwrap();
    assert!(icon.starts_with(b"<svg xmlns=") && icon.trim_ascii_end().ends_with(b"</svg>"));
    assert!(policy().contains("img-src data:;"));
}

#[test]
fn a_database_that_does_not_answer_is_told() {
    let gone = View { trouble: Some("cannot connect to <x>".into()), age: Duration::from_secs(90), ..view() };
    let text = page(&gone, false);
    assert!(text.contains("No news from the database: </strong>cannot connect to &lt;x&gt;"), "{text}");
    assert!(text.contains("1 min 30 s ago") && text.contains("s_failed</th>"));
    let never = page(&View { trouble: Some("no".into()), ..View::default() }, false);
    assert!(never.contains("Nothing is known of the stream tables yet."));
    assert!(page(&view(), false).contains("The refresher is not connected."));
    assert!(!page(&view(), true).contains("class=\"trouble\""));
}

#[test]
fn a_database_without_stream_tables_says_so() {
    let none = View { snapshot: Some(Arc::default()), ..View::default() };
    assert!(page(&none, true).contains("There is no stream table"));
}

#[test]
fn what_holds_old_rows_back_is_named() {
    assert!(!page(&view(), true).contains("A transaction is"), "one that was begun just now");
    let mut now = snapshot(&several());
    now.open = vec![open(4711, 420), open(77, 12)];
    let page = page(&View { snapshot: Some(Arc::new(now)), ..View::default() }, true);
    let told = "A transaction is 7 min old: process 4711, idle in transaction, application &quot;&lt;psql&gt;&quot;.";
    assert!(page.contains(told), "{page}");
    assert!(page.contains("pg_terminate_backend(4711)") && !page.contains("process 77"));
}

#[test]
fn a_period_that_is_longer_than_the_schedule_says_is_told() {
    let mut slow = behind("s_slow", &["orders"], 3_000);
    slow.slowed_to_ms = Some(2_500);
    let now = snapshot(&[slow]);
    let page = page(&View { snapshot: Some(Arc::new(now)), ..View::default() }, true);
    assert!(page.contains("refreshed every 2.5 s instead"), "{page}");
}

/// In the light and in the dark scheme, each health has a colour of its own.
#[test]
fn how_late_it_is_has_a_colour() {
    for scheme in STYLE.split("@media").take(2) {
        let colour = |health: Health| {
            let named = format!("--{}: #", health.word());
            let at = scheme.find(&named).unwrap_or_else(|| panic!("{named}")) + named.len();
            &scheme[at..at + 6]
        };
        let all: std::collections::BTreeSet<&str> = Health::ALL.into_iter().map(colour).collect();
        assert_eq!(all.len(), Health::ALL.len());
    }
    for health in Health::ALL {
        let word = health.word();
        assert!(STYLE.contains(&format!(".{word} {{ --tone: var(--{word})")), "{word}");
    }
}
