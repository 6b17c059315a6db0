//! The graph of sources and stream tables as SVG: levels from left to right, a curve from each table to its
//! readers.

use super::model::{Health, Snapshot, Table};
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// The greatest number of stream tables that are drawn. If there are more, the ones in the worst state are
/// drawn, with their sources.
const MOST: usize = 200;

/// The width of the picture if its levels fit, about the width of a page. The page stretches the picture to
/// the page's width. A picture that is wider than this scrolls.
const WANTED: f64 = 1060.0;
/// Three widths of a box: the least, the usual one if the levels fit, and the greatest, for long names.
const WIDTH: [f64; 3] = [160.0, 220.0, 300.0];
/// The height of a box whose name has one line. `LINE` is the height of each further line.
const HEIGHT: f64 = 46.0;
const LINE: f64 = 16.0;
/// The least and the greatest gap between levels.
const BESIDE: (f64, f64) = (60.0, 440.0);
/// The gap between the items of a level.
const BELOW: f64 = 16.0;
/// The greatest width of a letter in usual fonts. `PADDING` is the width of a box beyond its letters.
const LETTER: f64 = 8.0;
const PADDING: f64 = 24.0;
/// The height that a line takes in each level that the line passes through.
const PASSAGE: f64 = 14.0;
const MARGIN: f64 = 10.0;
/// The number of passes that sort each level by the places of the linked items in a neighbour level. Equally
/// many passes then move the items of each level towards the items that they are linked to.
const SWEEPS: usize = 8;

/// An item of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// A table.
    Table(String),
    /// A line that passes through the level on its way to a later level.
    Passage,
}

/// The width of boxes, and the gap between levels.
#[derive(Clone, Copy, Debug, Default)]
struct Grid {
    width: f64,
    apart: f64,
}

impl Grid {
    fn new(levels: &[Vec<String>]) -> Grid {
        let count = levels.len().max(1) as f64;
        let longest = levels.iter().flatten().map(|n| told(n).chars().count()).max().unwrap_or(0);
        let needed = (longest as f64 * LETTER + PADDING).clamp(WIDTH[1], WIDTH[2]);
        let width = needed.min((WANTED - (count - 1.0) * BESIDE.0) / count).max(WIDTH[0]).floor();
        let apart = (WANTED - count * width) / (count - 1.0).max(1.0);
        Grid { width, apart: apart.clamp(BESIDE.0, BESIDE.1).floor() }
    }

    /// Returns the left edge of a level. If `level` is the number of levels, the result minus the gap is the
    /// right edge of the last level.
    fn left(&self, level: usize) -> f64 {
        MARGIN + level as f64 * (self.width + self.apart)
    }

    /// Returns the lines into which a name is wrapped in its box.
    fn lines(&self, name: &str) -> Vec<String> {
        wrapped(told(name), ((self.width - PADDING) / LETTER) as usize)
    }
}

/// The items of the picture, their places, and the lines between them. Items are identified by their numbers.
#[derive(Debug, Default)]
struct Layout {
    items: Vec<Item>,
    /// The items of each level, from top to bottom.
    levels: Vec<Vec<usize>>,
    /// The vertical middle of each item.
    y: Vec<f64>,
    /// The height of each item.
    rooms: Vec<f64>,
    grid: Grid,
    /// The lines from sources to readers. Each line is a list of items: the source, the passages, the reader.
    lines: Vec<Vec<usize>>,
}

/// Draws the picture of a state of the stream tables.
pub(super) fn draw(now: &Snapshot) -> Markup {
    let tables: BTreeMap<&str, &Table> = now.tables.iter().map(|t| (t.name.as_str(), t)).collect();
    let (levels, edges) = shown(now);
    let layout = Layout::new(&levels, &edges);
    let height = layout.height();
    let width = layout.grid.left(levels.len()) - layout.grid.apart + MARGIN;
    let column: BTreeMap<usize, usize> =
        layout.levels.iter().enumerate().flat_map(|(c, l)| l.iter().map(move |i| (*i, c))).collect();
    let x = |i: usize| layout.grid.left(column.get(&i).copied().unwrap_or(0));
    let left_out = now.tables.len().saturating_sub(MOST);
    html! {
        @if left_out > 0 { p.note { "The " (MOST) " worst are drawn, with what they read; " (left_out) " are left out." } }
        svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Which stream table reads what"
            width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } {
            defs {
                marker #tip viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto" {
                    path.tip d="M0 0.5 L8 4 L0 7.5 z" {}
                }
            }
            @for line in &layout.lines {
                path class=(line_class(&layout, line, &tables)) d=(curve(&layout, line, &x)) marker-end="url(#tip)" {}
            }
            @for (i, item) in layout.items.iter().enumerate() {
                @if let Item::Table(name) = item {
                    (boxed(&layout, name, tables.get(name.as_str()).copied(), x(i), layout.y[i]))
                }
            }
        }
    }
}

/// Returns the levels and edges of the drawn tables: the worst stream tables, and their sources.
fn shown(now: &Snapshot) -> (Vec<Vec<String>>, Vec<(String, String)>) {
    let worst: BTreeSet<&str> = now.tables.iter().take(MOST).map(|t| t.name.as_str()).collect();
    let edges: Vec<(String, String)> =
        now.edges.iter().filter(|(_, to)| worst.contains(to.as_str())).cloned().collect();
    let read: BTreeSet<&str> = edges.iter().map(|(from, _)| from.as_str()).collect();
    let drawn = |n: &&String| worst.contains(n.as_str()) || read.contains(n.as_str());
    let levels = now.levels.iter().map(|level| level.iter().filter(drawn).cloned().collect::<Vec<_>>());
    // Empty levels are left out, since each would be an empty stripe.
    (levels.filter(|l| !l.is_empty()).collect(), edges)
}

/// Returns the CSS class of a line. If the reader at the end of the line is late or failed, the class shows
/// the reader's health.
fn line_class(layout: &Layout, line: &[usize], tables: &BTreeMap<&str, &Table>) -> String {
    let to = line.last().and_then(|i| layout.items.get(*i));
    let reader = match to {
        Some(Item::Table(name)) => tables.get(name.as_str()),
        _ => None,
    };
    let bad = reader.filter(|t| t.health >= Health::Late);
    bad.map_or_else(|| "edge".to_owned(), |t| format!("edge {}", t.health.word()))
}

fn curve(layout: &Layout, line: &[usize], x: &dyn Fn(usize) -> f64) -> String {
    let mut d = String::new();
    for pair in line.windows(2) {
        let [from, to] = pair else { continue };
        let (x1, y1) = (x(*from) + layout.grid.width, layout.y[*from]);
        let (x2, y2) = (x(*to), layout.y[*to]);
        if d.is_empty() {
            d = format!("M{x1:.0} {y1:.1}");
        }
        let bend = layout.grid.apart / 2.0;
        d += &format!(" C{:.0} {y1:.1} {:.0} {y2:.1} {x2:.0} {y2:.1}", x1 + bend, x2 - bend);
        if layout.items[*to] == Item::Passage {
            d += &format!(" L{:.0} {y2:.1}", x2 + layout.grid.width);
        }
    }
    d
}

fn boxed(layout: &Layout, name: &str, table: Option<&Table>, x: f64, middle: f64) -> Markup {
    let class = table.map_or("source", |t| t.health.word());
    let said = match table {
        None => "source".to_owned(),
        Some(t) => match t.health {
            Health::Fresh => format!("fresh · {}", t.mode),
            health => format!("{} · {}", health.word(), t.behind()),
        },
    };
    let full = table.map_or_else(
        || format!("{name}\nsource"),
        |t| format!("{name}\n{} · schedule {}\nlast refresh {}", t.mode, t.schedule(), t.last()),
    );
    let lines = layout.grid.lines(name);
    let height = room(&lines);
    let y = middle - height / 2.0;
    html! {
        g class=(class) transform={ "translate(" (x) " " (format!("{y:.1}")) ")" } {
            title { (full) }
            rect.box width=(layout.grid.width) height=(height) rx="7" {}
            @for (line, n) in lines.iter().zip(0_u16..) {
                text.name x="12" y=(19.0 + LINE * f64::from(n)) { (line) }
            }
            text.said x="12" y=(height - 10.0) { (said) }
        }
    }
}

/// Returns a name as its box shows it, without the schema `public`.
fn told(name: &str) -> &str {
    name.strip_prefix("public.").unwrap_or(name)
}

/// Wraps a name into lines of at most `fits` letters. A line ends after a dot or an underscore, if the name
/// has one at a suitable place.
fn wrapped(name: &str, fits: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for part in name.split_inclusive(['.', '_']) {
        let letters: Vec<char> = part.chars().collect();
        for piece in letters.chunks(fits.max(1)) {
            match lines.last_mut() {
                Some(line) if line.chars().count() + piece.len() <= fits => line.extend(piece),
                _ => lines.push(piece.iter().collect()),
            }
        }
    }
    lines
}

/// Returns the height of a box with these lines.
fn room(lines: &[String]) -> f64 {
    HEIGHT + LINE * lines.len().saturating_sub(1) as f64
}

impl Layout {
    fn new(levels: &[Vec<String>], edges: &[(String, String)]) -> Layout {
        let mut layout =
            Layout { levels: vec![Vec::new(); levels.len()], grid: Grid::new(levels), ..Layout::default() };
        let mut at: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (level, names) in levels.iter().enumerate() {
            for name in names {
                at.insert(name, (layout.add(level, Item::Table(name.clone())), level));
            }
        }
        for (from, to) in edges {
            let (Some(&(source, first)), Some(&(reader, last))) =
                (at.get(from.as_str()), at.get(to.as_str()))
            else {
                continue;
            };
            let mut line = vec![source];
            line.extend((first + 1..last).map(|level| layout.add(level, Item::Passage)));
            line.push(reader);
            layout.lines.push(line);
        }
        let beside = layout.beside();
        for sweep in 0..SWEEPS {
            layout.reorder(&beside, sweep % 2 == 0);
        }
        layout.place(&beside);
        layout
    }

    fn add(&mut self, level: usize, item: Item) -> usize {
        self.rooms.push(match &item {
            Item::Table(name) => room(&self.grid.lines(name)),
            Item::Passage => PASSAGE,
        });
        self.items.push(item);
        self.levels[level].push(self.items.len() - 1);
        self.items.len() - 1
    }

    /// Returns, for each item, the linked items in the level before and the linked items in the level after.
    fn beside(&self) -> Vec<[Vec<usize>; 2]> {
        let mut beside = vec![[Vec::new(), Vec::new()]; self.items.len()];
        for pair in self.lines.iter().flat_map(|l| l.windows(2)) {
            if let [from, to] = pair {
                beside[*from][1].push(*to);
                beside[*to][0].push(*from);
            }
        }
        beside
    }

    /// Sorts each level so that few lines cross: each item is ranked by the mean place of the items that it
    /// is linked to.
    fn reorder(&mut self, beside: &[[Vec<usize>; 2]], forth: bool) {
        let side = usize::from(!forth);
        let count = self.levels.len();
        for step in 0..count {
            let level = if forth { step } else { count - 1 - step };
            let mut place = vec![0.0; self.items.len()];
            for items in &self.levels {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(i, item)| place[*item] = (i as f64 + 0.5) / items.len() as f64);
            }
            let key = |i: &usize| mean(beside[*i][side].iter().map(|n| place[*n])).unwrap_or(place[*i]);
            self.levels[level].sort_by(|a, b| key(a).total_cmp(&key(b)));
        }
    }

    fn room(&self, item: usize) -> f64 {
        self.rooms[item]
    }

    /// Moves items towards the items that they are linked to, as far as their level has room.
    fn place(&mut self, beside: &[[Vec<usize>; 2]]) {
        self.y = vec![0.0; self.items.len()];
        for level in self.levels.clone() {
            self.spread(&level, &vec![0.0; level.len()]);
        }
        for sweep in 0..SWEEPS {
            for l in 0..self.levels.len() {
                let l = if sweep % 2 == 0 { l } else { self.levels.len() - 1 - l };
                let level = self.levels[l].clone();
                let both = |i: &usize| beside[*i].iter().flatten().map(|n| self.y[*n]).collect::<Vec<_>>();
                let wanted: Vec<f64> =
                    level.iter().map(|i| mean(both(i).into_iter()).unwrap_or(self.y[*i])).collect();
                self.spread(&level, &wanted);
            }
        }
        let top = (0..self.items.len()).map(|i| self.y[i] - self.room(i) / 2.0).fold(f64::INFINITY, f64::min);
        self.y.iter_mut().for_each(|y| *y += MARGIN - top);
    }

    /// Places the items of a level, in their order, near the wanted places and without overlap. Items that
    /// would overlap move together, to the mean of their wanted places.
    fn spread(&mut self, level: &[usize], wanted: &[f64]) {
        // Blocks of items that touch. A block has the place of its first item, and each item with its
        // distance from the first one.
        let mut blocks: Vec<(f64, Vec<(usize, f64)>)> = Vec::new();
        for (item, want) in level.iter().zip(wanted) {
            let mut block = (*want, vec![(*item, 0.0)]);
            while let Some((start, items)) = blocks.last() {
                let (Some((last, offset)), Some((first, _))) = (items.last(), block.1.first()) else { break };
                let step = offset + (self.room(*last) + self.room(*first)) / 2.0 + BELOW;
                if start + step <= block.0 {
                    break;
                }
                let (n, m) = (items.len() as f64, block.1.len() as f64);
                let joined = (start * n + (block.0 - step) * m) / (n + m);
                let Some((_, mut items)) = blocks.pop() else { break };
                items.extend(block.1.iter().map(|(i, o)| (*i, o + step)));
                block = (joined, items);
            }
            blocks.push(block);
        }
        for (start, items) in blocks {
            items.iter().for_each(|(i, offset)| self.y[*i] = start + offset);
        }
    }

    fn height(&self) -> f64 {
        let bottom = (0..self.items.len()).map(|i| self.y[i] + self.room(i) / 2.0).fold(0.0, f64::max);
        (bottom + MARGIN).ceil()
    }
}

fn mean(of: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = of.fold((0.0, 0.0), |(sum, n), y| (sum + y, n + 1.0));
    (n > 0.0).then(|| sum / n)
}

#[cfg(test)]
mod tests;
