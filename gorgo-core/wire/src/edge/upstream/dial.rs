//! Opens TCP connections to a replica. Its name is looked up each time, and options are set before the first packet.
//!
//! Because of the lookup at each dial, a replica that moves is found as soon as its connections end. The addresses of a
//! name are tried in turn; [`super::pool`] limits the total time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use gorgo_routing::config::HttpVersion;

/// TCP keep-alive interval, so that a dead peer is noticed.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// Address and protocol of a replica.
#[derive(Debug, Clone)]
pub(in crate::edge) struct ReplicaAddress {
    pub(in crate::edge) host: String,
    pub(in crate::edge) port: u16,
    pub(in crate::edge) http: HttpVersion,
    /// Congestion control of its connections; `None`: the system's default.
    pub(in crate::edge) congestion: Option<Arc<str>>,
}

impl ReplicaAddress {
    /// Opens a connection.
    ///
    /// # Errors
    /// The name is unknown, or the last of its addresses cannot be reached.
    pub(in crate::edge) async fn connect(&self) -> io::Result<TcpStream> {
        #[cfg(test)]
        if let Some(address) = told(&self.host) {
            return self.connect_to(std::iter::once(address)).await;
        }
        self.connect_to(lookup_host((self.host.as_str(), self.port)).await?).await
    }

    /// Connects to the first of these addresses that accepts.
    async fn connect_to(&self, addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            if let Some(name) = &self.congestion {
                set_congestion(SockRef::from(&socket), name)?;
            }
            match socket.connect(address).await {
                // The address family is fixed when a socket is made, so each address needs its own.
                Ok(stream) => return ready(stream),
                // Before connecting, so that it governs the connection from its first packet.
                Err(error) => failed = error,
            }
        }
        // Only the last failure is returned: with a single address, the usual case, that is all of them.
        Err(failed)
    }
}

fn ready(stream: TcpStream) -> io::Result<TcpStream> {
    // Without it the last piece of each request waits for a delayed acknowledgement.
    stream.set_nodelay(true)?;
    SockRef::from(&stream)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE))?;
    Ok(stream)
}

/// Checks that this process may choose the congestion control of this name.
///
/// # Errors
/// The system's error.
pub(in crate::edge) fn check_congestion(name: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // The kernel checks the name against its list for any TCP socket; this one is never connected.
    set_congestion(SockRef::from(&socket), name)
}

#[cfg(target_os = "linux")]
fn set_congestion(socket: SockRef<'_>, name: &str) -> io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes())
}

#[cfg(not(target_os = "linux"))]
fn set_congestion(_socket: SockRef<'_>, _name: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux lets a program choose it"))
}

/// Names that tests map to addresses.
#[cfg(test)]
static NAMES: parking_lot::Mutex<Vec<(String, SocketAddr)>> = parking_lot::Mutex::new(Vec::new());

#[cfg(test)]
pub(in crate::edge) fn tell_name(name: &str, address: SocketAddr) {
    NAMES.lock().push((name.to_owned(), address));
}

#[cfg(test)]
fn told(name: &str) -> Option<SocketAddr> {
    NAMES.lock().iter().rev().find(|(told, _)| told == name).map(|(_, address)| *address)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn target(host: &str, port: u16) -> ReplicaAddress {
        ReplicaAddress { host: host.to_owned(), port, http: HttpVersion::Http1, congestion: None }
    }

    #[tokio::test]
    async fn names_are_looked_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let by_name = target("localhost", address.port());
        assert_eq!(by_name.connect().await.unwrap().peer_addr().unwrap().port(), address.port());
        // `.invalid` never is a name (RFC 6761).
        assert!(target("gorgo.invalid", address.port()).connect().await.is_err());
    }

    #[tokio::test]
    async fn the_addresses_of_a_name_are_tried_in_turn() {
        let (first, second) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (gone, there) = (first.local_addr().unwrap(), second.local_addr().unwrap());
        drop(first);
        let found = target("unused", 0).connect_to([gone, there].into_iter()).await.unwrap();
        assert_eq!(found.peer_addr().unwrap(), there);
        assert!(found.nodelay().unwrap());
        assert_eq!(
            target("unused", 0).connect_to([gone].into_iter()).await.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert_eq!(target("unused", 0).connect_to([].into_iter()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_congestion_control_is_the_one_that_was_asked_for() {
        // Always built in and always allowed.
        check_congestion("reno").unwrap();
        assert!(check_congestion("no-such-thing").is_err());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut target = target("127.0.0.1", listener.local_addr().unwrap().port());
        target.congestion = Some("reno".into());
        let stream = target.connect().await.unwrap();
        let name = SockRef::from(&stream).tcp_congestion().unwrap();
        assert_eq!(String::from_utf8_lossy(&name).trim_end_matches('\0'), "reno");
    }
}
