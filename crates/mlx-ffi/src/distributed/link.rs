//! The connections of a rank to all others.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use super::member::Member;
use crate::{Error, Result};

/// What a connection begins with, so that nothing else is taken for a rank.
const MAGIC: [u8; 8] = *b"mlranks1";
/// Bytes of a greeting: the magic, the rank, the number of ranks and the digest.
const GREETING: usize = 8 + 4 + 4 + 32;
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// For a greeting to arrive, once there is a connection.
const GREETS: Duration = Duration::from_secs(5);

/// A connection to each other rank.
pub(super) struct Links {
    /// By rank; there is none to this one.
    pub sockets: Vec<Option<TcpStream>>,
    /// Messages that were sent to each rank, and received from it.
    pub counts: Vec<[u64; 2]>,
    /// For how long an exchange waits.
    pub answer: Duration,
    /// Why nothing can be exchanged any more.
    pub failed: Option<String>,
}

/// What one rank tells another first.
struct Greeting {
    rank: usize,
    size: usize,
    digest: [u8; 32],
}

impl Greeting {
    fn of(member: &Member) -> Greeting {
        Greeting { rank: member.rank, size: member.addresses.len(), digest: member.digest }
    }

    fn write(&self, mut socket: &TcpStream) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.rank as u32).to_le_bytes());
        bytes.extend((self.size as u32).to_le_bytes());
        bytes.extend(self.digest);
        socket.write_all(&bytes)
    }

    fn read(mut socket: &TcpStream) -> io::Result<Greeting> {
        let mut bytes = [0; GREETING];
        socket.read_exact(&mut bytes)?;
        let (magic, rest) = bytes.split_at(MAGIC.len());
        let number = |at: usize| {
            let bytes = [rest[at], rest[at + 1], rest[at + 2], rest[at + 3]];
            u32::from_le_bytes(bytes) as usize
        };
        let mut digest = [0; 32];
        digest.copy_from_slice(&rest[8..]);
        if magic != MAGIC {
            return Err(io::Error::other("it is no rank"));
        }
        Ok(Greeting { rank: number(0), size: number(4), digest })
    }

    /// Whether another rank fits to `own`.
    fn check(&self, own: &Greeting) -> Result<()> {
        let (own_rank, rank) = (own.rank, self.rank);
        if self.size != own.size {
            let (size, own) = (self.size, own.size);
            return Err(Error::new(format!(
                "rank {rank} is one of {size} ranks, and rank {own_rank} one of {own}: give all the same hosts"
            )));
        }
        if self.digest != own.digest {
            return Err(Error::new(format!(
                "rank {rank} has other model files than rank {own_rank}: give all ranks the same model"
            )));
        }
        Ok(())
    }
}

impl Links {
    /// Waits until there is a connection to every rank: lower ones are called, higher ones call.
    pub(super) fn meet(member: &Member) -> Result<Links> {
        let Member { rank, addresses, limits, .. } = member;
        let deadline = Instant::now() + limits.meet;
        let mut sockets: Vec<Option<TcpStream>> = addresses.iter().map(|_| None).collect();
        let own = Greeting::of(member);
        let listener = match rank + 1 < addresses.len() {
            true => Some(listen(addresses[*rank], deadline)?),
            false => None,
        };
        for lower in 0..*rank {
            sockets[lower] = Some(call(addresses[lower], lower, &own, deadline)?);
        }
        if let Some(listener) = listener {
            accept(&listener, &own, &mut sockets, deadline)?;
        }
        for socket in sockets.iter().flatten() {
            settle(socket)
                .map_err(|error| Error::new(format!("a connection of ranks: {error}")))?;
        }
        let counts = vec![[0; 2]; sockets.len()];
        Ok(Links { sockets, counts, answer: limits.answer, failed: None })
    }

    /// How many ranks there are.
    pub(super) fn size(&self) -> usize {
        self.sockets.len()
    }
}

/// Listens on this rank's address, which an earlier process may still hold for a moment.
fn listen(address: SocketAddr, deadline: Instant) -> Result<TcpListener> {
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(PAUSE);
            }
            Err(error) => {
                return Err(Error::new(format!("this rank cannot listen on {address}: {error}")));
            }
        }
    }
}

/// Connects to the lower rank at `address`, once it listens.
fn call(address: SocketAddr, rank: usize, own: &Greeting, deadline: Instant) -> Result<TcpStream> {
    loop {
        let greeted = TcpStream::connect_timeout(&address, GREETS).and_then(|socket| {
            own.write(&socket)?;
            socket.set_read_timeout(Some(left(deadline)))?;
            Ok((Greeting::read(&socket)?, socket))
        });
        match greeted {
            Ok((other, socket)) => {
                other.check(own)?;
                if other.rank != rank {
                    let found = other.rank;
                    return Err(Error::new(format!(
                        "at {address} is rank {found}, expected rank {rank}: give all the same hosts in the same order"
                    )));
                }
                return Ok(socket);
            }
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::new(format!("rank {rank} at {address} did not come: {error}")));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Waits for the calls of all higher ranks.
fn accept(
    listener: &TcpListener,
    own: &Greeting,
    sockets: &mut [Option<TcpStream>],
    deadline: Instant,
) -> Result<()> {
    let failed = |error: io::Error| Error::new(format!("waiting for other ranks: {error}"));
    listener.set_nonblocking(true).map_err(failed)?;
    loop {
        let missing: Vec<usize> =
            (own.rank + 1..own.size).filter(|rank| sockets[*rank].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::new(format!("these ranks did not come in time: {missing:?}")));
        }
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(PAUSE / 5);
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        let greeted = socket
            .set_nonblocking(false)
            .and_then(|()| socket.set_read_timeout(Some(GREETS.min(left(deadline)))))
            .and_then(|()| Greeting::read(&socket));
        // Whoever else calls is not waited for.
        let Ok(other) = greeted else { continue };
        // It is told who is here even where it does not fit, so that both say why.
        let _ = own.write(&socket);
        other.check(own)?;
        match sockets.get_mut(other.rank) {
            Some(place) if place.is_none() && other.rank > own.rank => *place = Some(socket),
            _ => {
                let rank = other.rank;
                return Err(Error::new(format!("two processes are rank {rank}")));
            }
        }
    }
}

/// A time limit of what is left, which is never 0: that would mean none.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// Sets a connection up for exchanges: small messages go at once, and a host that is gone is noticed within five
/// seconds, however long its rank computes.
fn settle(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(None)?;
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let tcp = libc::IPPROTO_TCP;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    #[cfg(target_os = "linux")]
    {
        set(socket, tcp, libc::TCP_KEEPIDLE, 2)?;
        set(socket, tcp, libc::TCP_USER_TIMEOUT, 5000)?;
    }
    #[cfg(target_os = "macos")]
    set(socket, tcp, libc::TCP_KEEPALIVE, 2)?;
    set(socket, tcp, libc::TCP_KEEPINTVL, 1)?;
    set(socket, tcp, libc::TCP_KEEPCNT, 3)
}

fn set(socket: &TcpStream, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` lives, and the call reads one `int`.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
