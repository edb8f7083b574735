//! `gorgo ctl`: what an operator does to a running router, over its admin port: take a replica out and let it back, pin a
//! policy, look. Each is one request that `curl` could make as well.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Command;
use crate::exit::Exit;

/// Longest wait for the router, for connecting and for its answer each.
const LIMIT: Duration = Duration::from_secs(10);

/// Arguments of `gorgo ctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ctl {
    /// The router's `admin.listen`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090", global = true)]
    admin: SocketAddr,
    #[command(subcommand)]
    deed: Deed,
}

#[derive(Debug, clap::Subcommand)]
enum Deed {
    /// The replicas: state, drained or not, requests there
    Replicas,
    /// Send nothing new to a replica; what runs there goes on
    Drain {
        /// Its name
        replica: String,
    },
    /// Let a drained replica take requests again
    Resume {
        /// Its name
        replica: String,
    },
    /// Which policy serves, which is the default
    Policy,
    /// Let this policy serve from the next decision on, in later runs too, until `unpin`
    Pin {
        /// A policy of the file or a preset
        policy: String,
    },
    /// Let the default policy serve again
    Unpin,
    /// What tuners do: weights that won, weights on trial, and why
    Tuners,
}

impl Command for Ctl {
    const NAME: &'static str = "ctl";
    const ABOUT: &'static str = "Operate a running router: drain a replica, pin a policy, look at its tuners";

    fn run(self) -> Exit {
        let (method, path) = match self.deed.request() {
            Ok(request) => request,
            Err(name) => {
                anstream::eprintln!("gorgo: `{name}` cannot be the name of a replica or a policy");
                return Exit::Usage;
            }
        };
        match ask(self.admin, method, &path) {
            Ok((status, said)) => {
                // A closed pipe is not worth an error.
                if status < 300 {
                    let _ = std::io::stdout().write_all(said.as_bytes());
                    Exit::Done
                } else {
                    let _ = anstream::stderr().write_all(format!("gorgo: {said}").as_bytes());
                    Exit::No
                }
            }
            Err(cause) => {
                anstream::eprintln!(
                    "gorgo: no router answers at {}: {cause}; name its admin.listen with --admin",
                    self.admin
                );
                Exit::Unavailable
            }
        }
    }
}

impl Deed {
    /// Method and path; or the name that could be in no path.
    fn request(&self) -> Result<(&'static str, String), &str> {
        let named = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#%".contains(&byte));
        Ok(match self {
            Self::Replicas => ("GET", "/replicas".to_owned()),
            Self::Policy => ("GET", "/policy".to_owned()),
            Self::Tuners => ("GET", "/tuners".to_owned()),
            Self::Unpin => ("POST", "/policy/unpin".to_owned()),
            Self::Drain { replica } if named(replica) => ("POST", format!("/replicas/{replica}/drain")),
            Self::Resume { replica } if named(replica) => ("POST", format!("/replicas/{replica}/resume")),
            Self::Pin { policy } if named(policy) => ("POST", format!("/policy/pin/{policy}")),
            Self::Drain { replica: name } | Self::Resume { replica: name } | Self::Pin { policy: name } => {
                return Err(name);
            }
        })
    }
}

/// One request on a connection of its own: status and body.
fn ask(admin: SocketAddr, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&admin, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {admin}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    match (status, answer.split_once("\r\n\r\n")) {
        (Some(status), Some((_, body))) => Ok((status, body.to_owned())),
        _ => Err(std::io::Error::other("what answers there is no HTTP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deed_is_one_request() {
        let drain = Deed::Drain { replica: "us-ashburn".to_owned() };
        assert_eq!(drain.request(), Ok(("POST", "/replicas/us-ashburn/drain".to_owned())));
        assert_eq!(Deed::Pin { policy: "gorgo".to_owned() }.request(), Ok(("POST", "/policy/pin/gorgo".to_owned())));
        assert_eq!(Deed::Tuners.request(), Ok(("GET", "/tuners".to_owned())));
        for name in ["a/b", "a b", "a?", ""] {
            let asked = Deed::Resume { replica: name.to_owned() };
            assert_eq!(asked.request().is_err(), !name.is_empty(), "{name:?}");
        }
    }
}
