//! A line to a server that can go dead. No byte then passes in either direction, and neither end notices. A
//! dead line acts like a cut cable or a firewall that forgot the connection, and not like a closed
//! connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest time for which a cut line still passes bytes. After the line is dropped, its threads end
/// within the same time.
const TICK: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    dead: AtomicBool,
    gone: AtomicBool,
}

/// A line from a port of this machine to a server's socket.
pub(crate) struct Line {
    port: u16,
    state: Arc<State>,
}

impl Line {
    /// Makes a line to the server that listens on this socket.
    pub(crate) fn to(socket: PathBuf) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Line { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        listener.set_nonblocking(true).unwrap();
        let state = line.state.clone();
        std::thread::spawn(move || {
            while !state.gone.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) => connect(client, &socket, &state),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(TICK),
                    Err(e) => panic!("{e}"),
                }
            }
        });
        line
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Stops all bytes from now on, of existing and of new connections.
    pub(crate) fn cut(&self) {
        self.state.dead.store(true, Ordering::Relaxed);
        // After this time a thread that was passing bytes on has finished its piece.
        std::thread::sleep(TICK * 3);
    }

    /// Lets bytes pass again, also bytes that were sent while the line was dead.
    pub(crate) fn mend(&self) {
        self.state.dead.store(false, Ordering::Relaxed);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.gone.store(true, Ordering::Relaxed);
    }
}

fn connect(client: TcpStream, socket: &PathBuf, state: &Arc<State>) {
    client.set_nonblocking(false).unwrap();
    client.set_read_timeout(Some(TICK)).unwrap();
    let Ok(server) = UnixStream::connect(socket) else { return };
    server.set_read_timeout(Some(TICK)).unwrap();
    let (from, to, s) = (client.try_clone().unwrap(), server.try_clone().unwrap(), state.clone());
    let (ended, other) = (to.try_clone().unwrap(), from.try_clone().unwrap());
    std::thread::spawn(move || {
        pass(from, to, &s);
        let _ = ended.shutdown(std::net::Shutdown::Both);
    });
    let s = state.clone();
    std::thread::spawn(move || {
        pass(server, client, &s);
        let _ = other.shutdown(std::net::Shutdown::Both);
    });
}

/// Passes bytes on until one end closes. While the line is dead, no piece is read or passed on.
fn pass(mut from: impl Read, mut to: impl Write, state: &State) {
    let mut bytes = [0; 16 << 10];
    while !state.gone.load(Ordering::Relaxed) {
        if state.dead.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            continue;
        }
        let n = match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => return,
        };
        // Some bytes may have been read just before the line went dead. Such bytes wait until the line is
        // mended.
        while state.dead.load(Ordering::Relaxed) && !state.gone.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
        }
        if to.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
}
