//! The open connections, and the choice of the one that is closed if there are too many.
//!
//! Each new connection is let in at once. If there is no room, the oldest connection at the earliest stage is
//! closed. If new connections were refused or had to wait, peers that came early and send nothing would take
//! all the room.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The greatest number of connections at a time, since each takes a file, and memory for the head of a
/// request.
const MOST: usize = 128;
/// The greatest number of connections of one peer, half of all places. The other half is always left for
/// other peers.
const MOST_OF_PEER: usize = 64;

/// The progress of a connection. If there are too many connections, a connection at the earliest stage is
/// closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The head of the connection's request is not complete.
    Asking,
    /// The answer is being sent. If the peer reads, this stage takes hardly any time.
    Taking,
    /// The answer is being made.
    Answering,
}

/// All open connections, in the order in which they came.
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
    /// A sender that is never used: when it is dropped, the connection closes.
    _stay: oneshot::Sender<()>,
}

/// The place of a connection. The place is free again when this value is dropped.
pub(super) struct Place {
    crowd: Arc<Crowd>,
    number: u64,
}

/// A future that ends when a connection loses its place and has to close.
pub(super) type Lost = oneshot::Receiver<()>;

impl Crowd {
    /// Gives a place to a connection of this peer. If another connection has to close for the new one, its
    /// [`Lost`] ends.
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

    /// Locks the list of connections. After a panic of another thread the list is still whole.
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Closes one of the connections that `among` accepts: the oldest one at the earliest stage.
    fn push_out(&mut self, among: impl Fn(&One) -> bool) {
        let candidates = self.all.iter().filter(|(_, o)| among(o));
        let leaving = candidates.min_by_key(|(number, o)| (o.stage, **number)).map(|(number, _)| *number);
        leaving.map(|number| self.all.remove(&number));
    }
}

impl Place {
    /// Notes that the connection of this place has reached a stage.
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

/// Returns the address under which the connections of a peer are counted. In IPv6 a peer has all addresses of
/// a /64 network, so these addresses count as one.
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
        // The peer has all connections that one peer may have. So a connection of this peer is closed, and
        // the connections of others stay.
        let new = crowd.enter(peer(1));
        let open: Vec<bool> = first.iter_mut().map(|(_, lost)| is_open(lost)).collect();
        assert_eq!(open.iter().position(|o| !o), Some(2));
        assert_eq!(open.iter().filter(|o| !**o).count(), 1);
        assert!(other.iter_mut().all(|(_, lost)| is_open(lost)));
        // No place is free. So a connection of any peer is closed: the oldest of those at the earliest stage.
        let third = crowd.enter(peer(3));
        assert!(!is_open(&mut first[3].1));
        // If all connections have sent their requests, a connection whose peer does not read the answer is
        // closed first. The connections that wait for an answer stay.
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
