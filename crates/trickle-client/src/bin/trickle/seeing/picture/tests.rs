//! Catches pictures in which boxes overlap, lines run through boxes or backwards, or a table is missing.

use super::*;
use crate::seeing::model::tests::{several, snapshot, status};

fn laid(edges: &[(&str, &str)], levels: &[&[&str]]) -> Layout {
    let levels: Vec<Vec<String>> =
        levels.iter().map(|l| l.iter().map(|n| (*n).to_owned()).collect()).collect();
    let edges: Vec<_> = edges.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    Layout::new(&levels, &edges)
}

/// Asserts that no two items of a level overlap, and that all items are inside the picture.
fn sound(layout: &Layout) {
    for level in &layout.levels {
        for pair in level.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let room = (layout.room(a) + layout.room(b)) / 2.0;
            assert!(
                layout.y[b] - layout.y[a] >= room,
                "{:?} overlaps {:?}",
                layout.items[a],
                layout.items[b]
            );
        }
        for i in level {
            assert!(layout.y[*i] - layout.room(*i) / 2.0 >= 0.0);
            assert!(layout.y[*i] + layout.room(*i) / 2.0 <= layout.height());
        }
    }
}

#[test]
fn a_line_past_a_level_has_a_way_of_its_own() {
    let layout = laid(&[("t", "a"), ("a", "b"), ("b", "c"), ("t", "c")], &[&["t"], &["a"], &["b"], &["c"]]);
    sound(&layout);
    let long = layout.lines.iter().find(|l| l.len() == 4).unwrap();
    assert_eq!(long[1..3].iter().filter(|i| layout.items[**i] == Item::Passage).count(), 2);
    assert_eq!(layout.lines.len(), 4);
}

#[test]
fn levels_are_put_in_the_order_that_crosses_least() {
    let layout = laid(&[("t", "y"), ("u", "x")], &[&["t", "u"], &["x", "y"]]);
    sound(&layout);
    let of = |name: &str| layout.items.iter().position(|i| *i == Item::Table(name.into())).unwrap();
    let above = |a: &str, b: &str| layout.y[of(a)] < layout.y[of(b)];
    assert_eq!(above("t", "u"), above("y", "x"));
    // No item is in the way of this line, so the line is straight.
    assert!((layout.y[of("t")] - layout.y[of("y")]).abs() < 1.0);
}

#[test]
fn everybody_is_drawn_once_with_all_edges() {
    let now = snapshot(&several());
    let svg = draw(&now).into_string();
    assert_eq!(svg.matches("<rect class=\"box\"").count(), now.tables.len() + 2);
    assert_eq!(svg.matches("marker-end").count(), now.edges.len());
    assert!(svg.contains("&quot;&lt;script&gt;&quot;") && !svg.contains("<script"), "{svg}");
    // The colour of a box shows the health of its stream table.
    for (class, name) in [("failed", "s_failed"), ("late", "s_late"), ("due", "s_due"), ("source", "orders")]
    {
        let group = svg.split("<g ").find(|g| g.contains(&format!(">{name}</text>"))).unwrap();
        assert!(group.starts_with(&format!("class=\"{class}\"")), "{group}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

/// Returns the width of the picture, and of its boxes.
fn widths(svg: &str) -> (f64, f64) {
    let number = |start: &str| -> f64 {
        let (_, rest) = svg.split_once(start).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let width = number(" width=\"");
    assert!(svg.contains(&format!("viewBox=\"0 0 {width} ")), "{svg}");
    (width, number("class=\"box\" width=\""))
}

/// Catches a graph that takes only a stripe at the left of its page. The picture ends at its rightmost box.
#[test]
fn the_graph_on_the_status_page_uses_its_width() {
    let chain = |n: usize, long: &str| {
        let name = |i: usize| format!("s{long}{i}");
        let mut all = vec![status(&name(0), &["orders"])];
        all.extend((1..n).map(|i| status(&name(i), &[&name(i - 1)])));
        draw(&snapshot(&all)).into_string()
    };
    for long in ["", "_revenue_by_region_and_calendar_month_in_euro"] {
        for n in 1..=12 {
            let (width, own) = widths(&chain(n, long));
            let levels = n as f64 + 1.0;
            let least = levels * own + (levels - 1.0) * BESIDE.0 + 2.0 * MARGIN;
            assert!(width >= least && width <= least.max(WANTED + 2.0 * MARGIN), "{n}: {width}");
            assert!(width >= 0.8 * WANTED, "{n}: {width}");
        }
    }
    // A stream table without sources is on the first level that is drawn.
    assert!(widths(&draw(&snapshot(&[status("s", &[])])).into_string()).0 < 2.0 * WIDTH[1]);
}

/// Catches names that end in … or run out of their boxes.
#[test]
fn a_long_name_in_the_graph_wraps_at_dots_and_underscores() {
    assert_eq!(wrapped("sales.by_region", 20), ["sales.by_region"]);
    assert_eq!(wrapped("analytics.revenue_by_region", 12), ["analytics.", "revenue_by_", "region"]);
    assert_eq!(wrapped("straßenverzögerungen", 8), ["straßenv", "erzögeru", "ngen"]);
    let long = "analytics.revenue_by_region_and_calendar_month_in_euro_and_in_dollar_and_so_on";
    let layout = laid(&[("t", long), ("t", "a")], &[&["t"], &[long, "a"]]);
    sound(&layout);
    let lines = layout.grid.lines(long);
    assert!(lines.len() > 1 && lines.concat() == long, "{lines:?}");
    assert!(lines.iter().all(|l| l.chars().count() as f64 * LETTER + PADDING <= layout.grid.width));
    let svg = draw(&snapshot(&[status(long, &["orders"])])).into_string();
    assert!(lines.iter().all(|l| svg.contains(&format!(">{l}</text>"))) && !svg.contains('…'), "{svg}");
}

#[test]
fn many_are_cut_to_the_worst() {
    let mut all: Vec<_> = (0..MOST + 40).map(|i| status(&format!("s{i:04}"), &["orders"])).collect();
    all.push(super::super::model::tests::behind("s_late", &["s0239"], 99_000));
    let now = snapshot(&all);
    let layout = {
        let (levels, edges) = shown(&now);
        Layout::new(&levels, &edges)
    };
    sound(&layout);
    let svg = draw(&now).into_string();
    assert!(
        svg.contains(">s_late</text>") && svg.contains(">s0239</text>") && svg.contains("41 are left out")
    );
}
