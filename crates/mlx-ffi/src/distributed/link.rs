//! The connections of a rank to all others.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use super::member::Member;
use crate::{Error, Result};

/// The first bytes of a connection, so that nothing else is taken for a rank.
const MAGIC: [u8; 8] = *b"mlranks3";
/// Bytes of a greeting: the magic, the purpose, the rank, the number of ranks, the group and the
/// digest.
const GREETING: usize = 8 + 4 + 4 + 4 + 8 + 32;
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// For a greeting to arrive, once there is a connection.
const GREETS: Duration = Duration::from_secs(5);

/// Connections by rank; there is none to this one.
pub(super) type Sockets = Vec<Option<TcpStream>>;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Values that ranks compute together: each is connected with each.
    Values,
    /// Orders of rank 0 to the others.
    Orders,
}

/// A connection to each other rank.
pub(super) struct Links {
    pub sockets: Sockets,
    /// Messages that were sent to each rank, and received from it.
    pub counts: Vec<[u64; 2]>,
    /// For how long an exchange waits.
    pub answer: Duration,
    /// Why nothing can be exchanged any more.
    pub failed: Option<String>,
}

/// The first message of a rank to another.
#[derive(Clone, Copy)]
struct Greeting {
    purpose: Purpose,
    rank: usize,
    size: usize,
    group: u64,
    digest: [u8; 32],
}

impl Greeting {
    fn of(member: &Member, purpose: Purpose) -> Greeting {
        let Member { rank, addresses, group, digest, .. } = member;
        let (size, group, digest) = (addresses.len(), *group, *digest);
        Greeting { purpose, rank: *rank, size, group, digest }
    }

    fn write(&self, mut socket: &TcpStream) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.purpose as u32).to_le_bytes());
        bytes.extend((self.rank as u32).to_le_bytes());
        bytes.extend((self.size as u32).to_le_bytes());
        bytes.extend(self.group.to_le_bytes());
        bytes.extend(self.digest);
        socket.write_all(&bytes)
    }

    fn read(mut socket: &TcpStream) -> io::Result<Greeting> {
        let mut bytes = [0; GREETING];
        socket.read_exact(&mut bytes)?;
        Greeting::parse(&bytes).ok_or_else(|| io::Error::other("it is no rank"))
    }

    /// The greeting of a rank, `None` where something else speaks.
    fn parse(bytes: &[u8; GREETING]) -> Option<Greeting> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let number = |at: usize| {
            let bytes = [rest[at], rest[at + 1], rest[at + 2], rest[at + 3]];
            u32::from_le_bytes(bytes) as usize
        };
        let (mut group, mut digest) = ([0; 8], [0; 32]);
        group.copy_from_slice(&rest[12..20]);
        digest.copy_from_slice(&rest[20..]);
        let (rank, size, group) = (number(4), number(8), u64::from_le_bytes(group));
        let purpose = if number(0) == 0 { Purpose::Values } else { Purpose::Orders };
        Some(Greeting { purpose, rank, size, group, digest })
    }

    /// Checks that another rank fits `own`.
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
                "rank {rank} has other model files or options than rank {own_rank}, or another device: give all ranks the same"
            )));
        }
        Ok(())
    }
}

impl Links {
    /// Waits until there is a connection to every rank: lower ones are called, higher ones call.
    /// With the connections for orders: those of rank 0 to all others.
    pub(super) fn meet(member: &Member) -> Result<(Links, Sockets)> {
        let Member { rank, addresses, limits, .. } = member;
        let deadline = Instant::now() + limits.meet;
        let none = || addresses.iter().map(|_| None).collect();
        let mut met = Met { values: none(), orders: none() };
        let own = |purpose| Greeting::of(member, purpose);
        for (lower, address) in addresses.iter().enumerate().take(*rank) {
            let socket = call(*address, lower, &own(Purpose::Values), deadline)?;
            met.values[lower] = Some(socket);
        }
        if *rank > 0 {
            met.orders[0] = Some(call(addresses[0], 0, &own(Purpose::Orders), deadline)?);
        }
        // Only now, so that of two groups on the same addresses one has all of them: the one that
        // has the first.
        if rank + 1 < addresses.len() {
            let listener = listen(addresses[*rank], deadline)?;
            accept(&listener, &own(Purpose::Values), &mut met, deadline)?;
        }
        let failed = |error| Error::new(format!("a connection of ranks: {error}"));
        for socket in met.values.iter().flatten() {
            settle(socket).and_then(|()| socket.set_nonblocking(true)).map_err(failed)?;
        }
        for socket in met.orders.iter().flatten() {
            settle(socket)
                .and_then(|()| notice_soon(socket))
                .and_then(|()| socket.set_write_timeout(Some(limits.answer)))
                .map_err(failed)?;
        }
        let counts = vec![[0; 2]; addresses.len()];
        let links = Links { sockets: met.values, counts, answer: limits.answer, failed: None };
        Ok((links, met.orders))
    }

    /// How many ranks there are.
    pub(super) fn size(&self) -> usize {
        self.sockets.len()
    }
}

/// The connections that are there.
struct Met {
    values: Sockets,
    orders: Sockets,
}

impl Met {
    /// The ranks of which a connection is missing to `own`, which they call.
    fn missing(&self, own: &Greeting) -> Vec<usize> {
        let lacks = |rank: &usize| {
            self.values[*rank].is_none() || own.rank == 0 && self.orders[*rank].is_none()
        };
        (own.rank + 1..own.size).filter(lacks).collect()
    }

    /// The slot for the connection of a rank that called `own`.
    fn place(&mut self, own: &Greeting, other: &Greeting) -> Option<&mut Option<TcpStream>> {
        let sockets = match other.purpose {
            Purpose::Values => &mut self.values,
            Purpose::Orders if own.rank == 0 => &mut self.orders,
            Purpose::Orders => return None,
        };
        sockets.get_mut(other.rank).filter(|place| place.is_none() && other.rank > own.rank)
    }

    /// Keeps the connection of the rank `other`, which is told who is here even where it does not
    /// fit: both say why.
    fn admit(&mut self, own: &Greeting, socket: TcpStream, other: &Greeting) -> Result<()> {
        let _ = own.write(&socket);
        if other.group != own.group {
            // It calls again, until its own ranks listen here.
            return Ok(());
        }
        other.check(own)?;
        let rank = other.rank;
        let place = self.place(own, other);
        let place = place.ok_or_else(|| Error::new(format!("two processes are rank {rank}")))?;
        *place = Some(socket);
        Ok(())
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
            // A rank that listens answers at once.
            socket.set_read_timeout(Some(left(deadline).min(GREETS)))?;
            let other = Greeting::read(&socket).map_err(unheard)?;
            match other.group == own.group {
                true => Ok((other, socket)),
                false => Err(io::Error::other("ranks of another group listen there")),
            }
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

/// Why a greeting was not heard, of whoever listens where a rank should.
fn unheard(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::other("what listens there says nothing: another program may have the port")
        }
        _ => error,
    }
}

/// Waits for the calls of all higher ranks. Whoever is silent or is no rank holds up nobody.
fn accept(listener: &TcpListener, own: &Greeting, met: &mut Met, deadline: Instant) -> Result<()> {
    let failed = |error: io::Error| Error::new(format!("waiting for other ranks: {error}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let mut callers = Vec::new();
    loop {
        let missing = met.missing(own);
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::new(format!("these ranks did not come in time: {missing:?}")));
        }
        match listener.accept() {
            Ok((socket, _)) => callers.extend(Caller::new(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE / 5),
            Err(error) => return Err(failed(error)),
        }
        for caller in mem::take(&mut callers) {
            match caller.read() {
                Heard::Nothing(caller) => callers.push(caller),
                Heard::Noise => {}
                Heard::Rank(socket, other) => met.admit(own, socket, &other)?,
            }
        }
    }
}

/// A connection whose greeting has not been read in full.
struct Caller {
    socket: TcpStream,
    bytes: [u8; GREETING],
    read: usize,
    until: Instant,
}

/// The result of reading a caller's greeting.
enum Heard {
    /// Not all of it yet.
    Nothing(Caller),
    /// Another protocol, silence for too long, or a closed connection.
    Noise,
    Rank(TcpStream, Greeting),
}

impl Caller {
    fn new(socket: TcpStream) -> Option<Caller> {
        socket.set_nonblocking(true).ok()?;
        Some(Caller { socket, bytes: [0; GREETING], read: 0, until: Instant::now() + GREETS })
    }

    /// Reads what has arrived, without waiting for more.
    fn read(mut self) -> Heard {
        while self.read < GREETING {
            match self.socket.read(&mut self.bytes[self.read..]) {
                Ok(0) => return Heard::Noise,
                Ok(count) => self.read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let late = Instant::now() >= self.until;
                    return if late { Heard::Noise } else { Heard::Nothing(self) };
                }
                Err(_) => return Heard::Noise,
            }
        }
        // One that has hung up calls again.
        let more = self.socket.read(&mut [0]);
        if !more.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            return Heard::Noise;
        }
        match (self.socket.set_nonblocking(false), Greeting::parse(&self.bytes)) {
            (Ok(()), Some(greeting)) => Heard::Rank(self.socket, greeting),
            _ => Heard::Noise,
        }
    }
}

/// A time limit of what is left, which is never 0: that would mean none.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// Sets a connection up: small messages go at once, and a host that is gone while nothing is under
/// way is noticed within five seconds.
fn settle(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(None)?;
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    let tcp = libc::IPPROTO_TCP;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    #[cfg(target_os = "linux")]
    set(socket, tcp, libc::TCP_KEEPIDLE, 2)?;
    #[cfg(target_os = "macos")]
    set(socket, tcp, libc::TCP_KEEPALIVE, 2)?;
    set(socket, tcp, libc::TCP_KEEPINTVL, 1)?;
    set(socket, tcp, libc::TCP_KEEPCNT, 3)
}

/// Has a host that is gone noticed within five seconds while something is under way, too. Not for
/// values: what they fill may stay full for as long as the other rank computes, and Linux ends such
/// a connection then.
fn notice_soon(socket: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 5000)?;
    let _ = socket;
    Ok(())
}

fn set(socket: &TcpStream, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` lives, and the call reads one `int`.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
