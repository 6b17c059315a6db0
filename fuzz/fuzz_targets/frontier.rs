//! Checks the algebra of frontiers against the sets of (transaction, command) that they denote.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trickle_core::frontier::{ALL_COMMANDS, Frontier, Snapshot, window};
use trickle_core::testing::Choice;

/// The number of transaction ids: small, so that the whole set of pairs is compared.
const XIDS: usize = 12;
const COMMANDS: usize = 3;

fn draw(choice: &mut Choice) -> Frontier {
    let number = |choice: &mut Choice, below: usize| u64::try_from(choice.below(below)).unwrap_or(0);
    let open = choice.below(4);
    let in_progress: Vec<u64> = (0..open).map(|_| number(choice, XIDS)).collect();
    let snapshot = Snapshot::new(number(choice, XIDS), in_progress);
    let own = choice.one_in(2).then(|| {
        let command = u32::try_from(choice.below(COMMANDS + 1)).unwrap_or(0);
        let command = if command as usize == COMMANDS { ALL_COMMANDS } else { command };
        (1 + number(choice, XIDS), command)
    });
    Frontier::new(1, 1, &snapshot, own)
}

/// Returns which of all pairs a set contains.
fn image(contains: impl Fn(u64, u32) -> bool) -> Vec<bool> {
    let pairs = (1..=XIDS as u64 + 2).flat_map(|x| (0..=COMMANDS as u32).map(move |c| (x, c)));
    pairs.map(|(x, c)| contains(x, c)).collect()
}

fn of(f: &Frontier) -> Vec<bool> {
    image(|x, c| f.contains(x, c))
}

fn zip(a: &[bool], b: &[bool], f: impl Fn(bool, bool) -> bool) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let mut choice = Choice::bytes(bytes);
    let (f, g) = (draw(&mut choice), draw(&mut choice));
    let (join, meet) = match (f.join(&g), g.meet(&f)) {
        (Ok(join), Ok(meet)) => (join, meet),
        (join, meet) => panic!("frontiers of one database: {join:?} {meet:?}"),
    };
    assert_eq!(of(&join), zip(&of(&f), &of(&g), |a, b| a || b), "join of {f:?} and {g:?}");
    assert_eq!(of(&meet), zip(&of(&f), &of(&g), |a, b| a && b), "meet of {f:?} and {g:?}");
    let within = zip(&of(&f), &of(&g), |a, b| !a || b).into_iter().all(|x| x);
    assert!(!f.is_within(&g) || within, "{f:?} within {g:?}");
    assert!(meet.is_within(&f) && f.is_within(&join));
    assert_eq!(f == g, f.is_within(&g) && g.is_within(&f), "{f:?} {g:?}");
    let w = window(&f, &g);
    assert_eq!(image(|x, c| w.contains(x, c)), zip(&of(&f), &of(&g), |a, b| b && !a));
    let again = f.to_json().and_then(|text| Frontier::from_json(&text));
    assert_eq!(again.ok(), Some(f), "JSON");
});
