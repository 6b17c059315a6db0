//! The connections that are open, and which of them goes where there are too many.
//!
//! Everybody is let in at once, and where there is no room the connection goes that has shown least: to
//! refuse the new one, or to let it wait, would give the room to those who came early and say nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Connections at a time: as many files, and as many heads of requests in memory.
const MOST: usize = 128;
/// Those of one peer: another one always finds as many places again that this one cannot fill.
const MOST_OF_PEER: usize = 64;

/// How far a connection is, in the order in which they go where there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The head of its request is not complete.
    Asking,
    /// It is being sent its answer, which takes no time where the peer reads.
    Taking,
    /// Its answer is being made.
    Answering,
}

/// All that are open, by the order in which they came.
#[derive(Default)]
pub(super) struct Crowd(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    all: BTreeMap<u64, One>,
}

struct One {
    peer: IpAddr,
    stage: Stage,
    /// Dropped, it tells the connection to go.
    _stay: oneshot::Sender<()>,
}

/// A connection's place, which is free again when this is dropped.
pub(super) struct Place {
    crowd: Arc<Crowd>,
    number: u64,
}

/// Done when the place is somebody else's.
pub(super) type Lost = oneshot::Receiver<()>;

impl Crowd {
    /// A place for a connection of this peer; whoever has to go for that is told.
    pub(super) fn enter(self: &Arc<Crowd>, peer: IpAddr) -> (Place, Lost) {
        let peer = network(peer);
        let (stay, lost) = oneshot::channel();
        let mut open = self.open();
        let own = open.all.values().filter(|o| o.peer == peer).count();
        if own >= MOST_OF_PEER {
            open.push_out(|o| o.peer == peer);
        } else if open.all.len() >= MOST {
            open.push_out(|_| true);
        }
        open.last += 1;
        let number = open.last;
        open.all.insert(number, One { peer, stage: Stage::Asking, _stay: stay });
        (Place { crowd: self.clone(), number }, lost)
    }

    /// What a panic elsewhere left behind is still a list of connections.
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The oldest of the least far of these goes.
    fn push_out(&mut self, among: impl Fn(&One) -> bool) {
        let candidates = self.all.iter().filter(|(_, o)| among(o));
        let leaving = candidates.min_by_key(|(number, o)| (o.stage, **number)).map(|(number, _)| *number);
        leaving.map(|number| self.all.remove(&number));
    }
}

impl Place {
    /// The connection is so far now.
    pub(super) fn is(&self, stage: Stage) {
        if let Some(one) = self.crowd.open().all.get_mut(&self.number) {
            one.stage = stage;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.open().all.remove(&self.number);
    }
}

/// Addresses that one peer has at will count as one: in IPv6 those of a network of 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(n: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
    }

    fn is_open(lost: &mut Lost) -> bool {
        lost.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    #[test]
    fn a_full_house_drops_the_oldest_unasked_connection() {
        let crowd = Arc::new(Crowd::default());
        let mut first: Vec<(Place, Lost)> = (0..MOST_OF_PEER).map(|_| crowd.enter(peer(1))).collect();
        first[0].0.is(Stage::Answering);
        first[1].0.is(Stage::Taking);
        let mut other: Vec<(Place, Lost)> = (0..MOST - MOST_OF_PEER).map(|_| crowd.enter(peer(2))).collect();
        // One's own share is full: one's own connection goes, and the others' stay.
        let new = crowd.enter(peer(1));
        let open: Vec<bool> = first.iter_mut().map(|(_, lost)| is_open(lost)).collect();
        assert_eq!(open.iter().position(|o| !o), Some(2));
        assert_eq!(open.iter().filter(|o| !**o).count(), 1);
        assert!(other.iter_mut().all(|(_, lost)| is_open(lost)));
        // The house is full: the oldest of all goes.
        let third = crowd.enter(peer(3));
        assert!(!is_open(&mut first[3].1));
        // Where all have asked, whoever does not take the answer goes before whoever waits for one.
        for (place, _) in first.iter().chain(&other).chain([&new, &third]) {
            place.is(Stage::Answering);
        }
        first[9].0.is(Stage::Taking);
        let more = crowd.enter(peer(4));
        assert!(!is_open(&mut first[9].1) && is_open(&mut first[0].1));
        drop((first, other, new, third));
        assert_eq!(crowd.open().all.len(), 1, "places are given back");
        drop(more);
    }

    #[test]
    fn one_network_of_ipv6_is_one_peer() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(network(ip("2001:db8::1")), network(ip("2001:db8::2")));
        assert_ne!(network(ip("2001:db8::1")), network(ip("2001:db8:0:1::1")));
        assert_eq!(network(ip("::ffff:10.0.0.1")), peer(1));
    }
}
