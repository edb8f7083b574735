//! Refusal of clients when the process cannot open another file: a new client gets a response at once.
//!
//! Without a free descriptor nothing can be accepted, and clients would wait in the kernel's queue until they give up.
//! One spare descriptor is kept; released for a moment, it lets one client in to be refused. Running streams keep
//! theirs.

use std::fs::File;
use std::io;

use tokio::net::{TcpListener, TcpStream};

/// `EMFILE` of all Unix systems: this process has too many open files. `ENFILE`, of the whole system, is one less.
const TOO_MANY_OPEN: i32 = 24;

const ANSWER: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n",
    "content-length: 124\r\n\r\n",
    r#"{"error":{"message":"too many open connections; try again later","type":"upstream_error","param":null,"code":"overloaded"}}"#,
    "\n"
);

/// Spare descriptor.
#[derive(Debug)]
pub(in crate::edge) struct SpareDescriptor(Option<File>);

impl SpareDescriptor {
    pub(in crate::edge) fn take() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Opens the descriptor again if none was free last time.
    pub(in crate::edge) fn reopen(&mut self) {
        if self.0.is_none() {
            *self = Self::take();
        }
    }

    /// Refuses one client if this error of `accept` calls for it. `false`: it does not, or the refusal is impossible.
    pub(in crate::edge) async fn refuse_client(&mut self, listener: &TcpListener, error: &io::Error) -> bool {
        let full = error.raw_os_error().is_some_and(|code| code == TOO_MANY_OPEN || code == TOO_MANY_OPEN - 1);
        if !full || self.0.take().is_none() {
            return false;
        }
        let accepted = listener.accept().await;
        if let Ok((stream, _)) = &accepted {
            write_refusal(stream);
        }
        // Closed before the spare is reopened, which needs the descriptor.
        let refused = accepted.is_ok();
        drop(accepted);
        self.reopen();
        refused
    }
}

/// Sends the refusal without waiting: it fits into the kernel's buffer, and a client that is gone needs none.
fn write_refusal(stream: &TcpStream) {
    // The request is read first: closing a socket with unread bytes sends a reset, which can overtake the response.
    let _ = stream.try_read(&mut [0; 16 << 10]);
    let _ = stream.try_write(ANSWER.as_bytes());
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn the_answer_has_the_length_that_it_states() {
        let (head, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "overloaded");
    }

    #[tokio::test]
    async fn one_client_is_refused_and_other_errors_are_not_its_business() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut reserve = SpareDescriptor::take();
        assert!(!reserve.refuse_client(&listener, &io::Error::from_raw_os_error(13)).await);
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(reserve.refuse_client(&listener, &io::Error::from_raw_os_error(TOO_MANY_OPEN)).await);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, ANSWER);
        assert!(reserve.0.is_some(), "it is held again");
    }
}
