//! `gorgo ctl`: operates a running router over its admin port: drain and resume a replica, pin a policy, look at its
//! state. Each action is one request that `curl` could make as well.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use gorgo_routing::config::{EngineUrl, HttpVersion};
use gorgo_wire::engine::HttpEndpoint;
use gorgo_wire::engine::client::{EngineClient, EngineResponse};
use hyper::Method;
use tokio_util::task::TaskTracker;

use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::runtime::{block_on, clock};

/// Longest wait for the router, separately for connecting and for its answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer, bytes.
const MOST_BYTES: usize = 64 << 20;

/// Arguments of `gorgo ctl`.
#[derive(Debug, clap::Args)]
pub(crate) struct CtlArgs {
    /// The router's `admin.listen`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9090", global = true)]
    admin: SocketAddr,
    #[command(subcommand)]
    deed: CtlAction,
}

#[derive(Debug, clap::Subcommand)]
enum CtlAction {
    /// List the replicas: state, drained or not, requests in flight
    Replicas,
    /// Send nothing new to a replica; running requests continue
    Drain {
        /// Name of the replica
        replica: String,
    },
    /// Let a drained replica take requests again
    Resume {
        /// Name of the replica
        replica: String,
    },
    /// Show the policy that serves, and the default
    Policy,
    /// Let this policy serve from the next decision on, also after a restart, until `unpin`
    Pin {
        /// Policy of the file, or a preset
        policy: String,
    },
    /// Let the default policy serve again
    Unpin,
    /// Show the state of tuners: accepted weights, weights on trial, and verdicts
    Tuners,
}

impl CliCommand for CtlArgs {
    const NAME: &'static str = "ctl";
    const ABOUT: &'static str = "Operate a running router: drain a replica, pin a policy, look at its tuners";

    fn run(self) -> CommandExit {
        let (method, path) = match self.deed.request() {
            Ok(request) => request,
            Err(name) => {
                anstream::eprintln!(
                    "gorgo: `{name}` cannot be the name of a replica or a policy: `/`, `?`, `#`, `%`, spaces and \
                     non-ASCII characters are not allowed"
                );
                return CommandExit::Usage;
            }
        };
        block_on(async move {
            match ask(self.admin, &method, &path).await {
                Ok(answer) => {
                    let said = String::from_utf8_lossy(&answer.body);
                    // A closed pipe is ignored: the exit code still has the answer.
                    if answer.status.is_success() {
                        let _ = std::io::stdout().write_all(said.as_bytes());
                        CommandExit::Done
                    } else {
                        // The router's own message already says what is wrong and which names are known.
                        let _ = anstream::stderr().write_all(format!("gorgo: {said}").as_bytes());
                        CommandExit::Negative
                    }
                }
                Err(cause) => {
                    anstream::eprintln!(
                        "gorgo: no router answers at {}: {cause}; pass its admin.listen with --admin",
                        self.admin
                    );
                    CommandExit::Unavailable
                }
            }
        })
    }
}

impl CtlAction {
    /// Method and path; or the name that fits no path.
    fn request(&self) -> Result<(Method, String), &str> {
        // The name is put into the path without escaping, so characters with a meaning there are refused.
        let named = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#%".contains(&byte));
        Ok(match self {
            Self::Replicas => (Method::GET, "/replicas".to_owned()),
            Self::Policy => (Method::GET, "/policy".to_owned()),
            Self::Tuners => (Method::GET, "/tuners".to_owned()),
            Self::Unpin => (Method::POST, "/policy/unpin".to_owned()),
            Self::Drain { replica } if named(replica) => (Method::POST, format!("/replicas/{replica}/drain")),
            Self::Resume { replica } if named(replica) => (Method::POST, format!("/replicas/{replica}/resume")),
            Self::Pin { policy } if named(policy) => (Method::POST, format!("/policy/pin/{policy}")),
            Self::Drain { replica: name } | Self::Resume { replica: name } | Self::Pin { policy: name } => {
                return Err(name);
            }
        })
    }
}

/// One request on its own connection.
async fn ask(admin: SocketAddr, method: &Method, path: &str) -> Result<EngineResponse, Box<dyn std::error::Error>> {
    let endpoint = HttpEndpoint::new(EngineUrl::of_socket(admin), None, HttpVersion::Http1)?;
    let (mut client, clock) = (EngineClient::new(endpoint, TaskTracker::new()), clock());
    // A POST has an empty body: all that an action needs is in its path.
    Ok(if *method == Method::POST {
        client.post(path, Bytes::new(), MOST_BYTES, LIMIT, &*clock).await?
    } else {
        client.get(path, MOST_BYTES, LIMIT, &*clock).await?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deed_is_one_request() {
        let drain = CtlAction::Drain { replica: "us-ashburn".to_owned() };
        assert_eq!(drain.request(), Ok((Method::POST, "/replicas/us-ashburn/drain".to_owned())));
        assert_eq!(
            CtlAction::Pin { policy: "gorgo".to_owned() }.request(),
            Ok((Method::POST, "/policy/pin/gorgo".to_owned()))
        );
        assert_eq!(CtlAction::Tuners.request(), Ok((Method::GET, "/tuners".to_owned())));
        for name in ["a/b", "a b", "a?", ""] {
            let asked = CtlAction::Resume { replica: name.to_owned() };
            assert_eq!(asked.request().is_err(), !name.is_empty(), "{name:?}");
        }
    }
}
