//! Suggestions for misspelt names.

/// Returns the name nearest to `name`, if it is near enough. The limit is one edit, plus one edit for every
/// four characters.
pub fn nearest<'n>(name: &str, among: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let (edits, near) = among.map(|n| (distance(name, n), n)).min()?;
    let length = name.chars().count();
    (edits <= 1 + length / 4 && edits < length && near != name).then_some(near)
}

/// Counts the edits (insert, delete, replace, swap of neighbours) that turn one name into the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("ordres", "orders"), 1);
        assert_eq!(distance("a", "b"), 1);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn what_is_far_was_not_meant() {
        assert_eq!(nearest("ordres", ["orders", "order_items"].into_iter()), Some("orders"));
        assert_eq!(nearest("ordres", ["customers"].into_iter()), None);
        assert_eq!(nearest("a", ["b"].into_iter()), None);
    }
}
