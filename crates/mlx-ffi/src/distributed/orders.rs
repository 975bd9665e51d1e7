//! Orders of rank 0 to the others beside what they compute together, and their answers: messages of
//! any length.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::link::Sockets;
use crate::{Error, Result};

/// The longest message: what is longer was not sent by a rank.
const MOST: usize = 1 << 30;
/// For the rest of a message whose beginning is there.
const REST: Duration = Duration::from_secs(60);

/// The connections of rank 0 to all others. Rank 0 tells all of them the same; each of them answers
/// rank 0 alone.
///
/// A wait has no limit, takes no core, and ends once the other rank has ended.
pub struct Orders {
    sockets: Sockets,
    /// One message at a time.
    telling: Mutex<()>,
}

impl Orders {
    pub(super) fn new(sockets: Sockets) -> Orders {
        Orders { sockets, telling: Mutex::new(()) }
    }

    fn others(&self) -> impl Iterator<Item = (usize, &TcpStream)> {
        let all = self.sockets.iter().enumerate();
        all.filter_map(|(rank, socket)| Some((rank, socket.as_ref()?)))
    }

    /// Tells it all others; what ranks other than 0 tell goes to rank 0.
    ///
    /// # Errors
    /// The first rank that is gone, or takes nothing in, once the others were told.
    pub fn tell(&self, message: &[u8]) -> Result<()> {
        let length = u32::try_from(message.len()).ok().filter(|length| *length as usize <= MOST);
        let length = length.ok_or_else(|| Error::new("an order is longer than 1 GiB"))?;
        let frame = [&length.to_le_bytes()[..], message].concat();
        let _one = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = Ok(());
        for (rank, mut socket) in self.others() {
            told = told.and(socket.write_all(&frame).map_err(|error| lost(rank, &error)));
        }
        told
    }

    /// The next message of any other rank, with its number.
    ///
    /// # Errors
    /// A rank that is gone.
    pub fn next(&self) -> Result<(usize, Vec<u8>)> {
        let (rank, socket) = self.ready()?;
        let message = socket.set_read_timeout(Some(REST)).and_then(|()| read(socket));
        message.map(|message| (rank, message)).map_err(|error| lost(rank, &error))
    }

    /// A rank that says something, or has ended.
    fn ready(&self) -> Result<(usize, &TcpStream)> {
        let all: Vec<(usize, &TcpStream)> = self.others().collect();
        let descriptor = |(_, socket): &(usize, &TcpStream)| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut descriptors: Vec<libc::pollfd> = all.iter().map(descriptor).collect();
        loop {
            // SAFETY: the call reads and writes as many descriptors as there are, which are open as
            // long as `self`.
            let count = unsafe {
                libc::poll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, -1)
            };
            let error = io::Error::last_os_error();
            if count < 0 && error.kind() != io::ErrorKind::Interrupted {
                return Err(Error::new(format!("waiting for other ranks: {error}")));
            }
            let ready = descriptors.iter().position(|descriptor| descriptor.revents != 0);
            if let (1.., Some(at)) = (count, ready) {
                return Ok(all[at]);
            }
        }
    }
}

fn read(mut socket: &TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST {
        return Err(io::Error::other("it sent no order"));
    }
    let mut message = Vec::new();
    let count = socket.take(length as u64).read_to_end(&mut message)?;
    if count < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}

fn lost(rank: usize, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => {
            Error::new(format!("rank {rank} is lost: it has ended, or left the group"))
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::new(format!("rank {rank} is lost: it does not answer"))
        }
        _ => Error::new(format!("rank {rank} is lost: {error}")),
    }
}
