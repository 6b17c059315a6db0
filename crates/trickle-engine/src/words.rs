//! Writes numbers, times and lists for people.

use std::time::Duration;

/// Returns a duration as people say it: `840 µs`, `12 ms`, `3.4 s`, `2 min 5 s`, `3 h 12 min`, `2 d 4 h`.
pub fn duration(d: Duration) -> String {
    let s = d.as_secs();
    let two = |a: u64, x: &str, b: u64, y: &str| {
        if b == 0 { format!("{a} {x}") } else { format!("{a} {x} {b} {y}") }
    };
    match s {
        0 if d.as_micros() < 1_000 => format!("{} µs", d.as_micros()),
        0 => format!("{} ms", d.as_millis()),
        1..60 => format!("{:.1} s", d.as_secs_f64()),
        60..3_600 => two(s / 60, "min", s % 60, "s"),
        3_600..86_400 => two(s / 3_600, "h", s % 3_600 / 60, "min"),
        _ => two(s / 86_400, "d", s % 86_400 / 3_600, "h"),
    }
}

/// Returns a count with its noun: `1 query`, `12,345 queries`.
pub fn count(n: usize, one: &str, many: &str) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(d);
    }
    format!("{grouped} {}", if n == 1 { one } else { many })
}

/// Returns a list as people say it: `"a", "b" and "c"`.
pub fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
