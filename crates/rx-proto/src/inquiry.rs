//! A question of rxdebug. It is about a whole server, though it reaches only one of the endpoints
//! that the server is made of: every one of them adds what it knows.

use crate::debug::{self, Basics, ConnectionView, PeerView, Question};
use crate::header::Header;
use crate::path::Path;
use crate::statistics::Statistics;

/// A question on its way through a server's endpoints.
///
/// [`crate::Endpoint::inquire`] of the endpoint that the DEBUG packet reached begins it,
/// [`crate::Endpoint::examine`] of every endpoint in the same order each time adds to it, and
/// [`crate::Endpoint::answer`] of the first sends the sum. The entries of a list are those of the
/// first endpoint, then those of the second, and so on.
#[derive(Debug)]
pub struct Inquiry {
    pub(crate) path: Path,
    pub(crate) header: Header,
    pub(crate) progress: Progress,
    /// Bytes that the body of the answer may have.
    pub(crate) room: usize,
}

/// What has been found so far.
#[derive(Debug)]
pub(crate) enum Progress {
    Basics(Basics),
    Counters(Box<Statistics>),
    /// The entry wanted is still this many away.
    Seeking(List, u32),
    Found(Vec<u8>),
    Unknown,
}

/// What can be asked for one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    BusyConnections,
    Connections,
    Peers,
}

impl Inquiry {
    pub(crate) fn new(path: Path, header: Header, question: Question, room: usize) -> Inquiry {
        let progress = match question {
            Question::Basics => Progress::Basics(Basics::default()),
            Question::Counters => Progress::Counters(Box::default()),
            Question::BusyConnection(index) => Progress::Seeking(List::BusyConnections, index),
            Question::Connection(index) => Progress::Seeking(List::Connections, index),
            Question::Peer(index) => Progress::Seeking(List::Peers, index),
            Question::Unknown => Progress::Unknown,
        };
        Inquiry { path, header, progress, room }
    }

    /// The body of the answer. Where there is no room for it, it says that there is no such entry, or no such question.
    pub(crate) fn body(&self) -> Vec<u8> {
        let body = self.full_body();
        if body.len() <= self.room {
            return body;
        }
        match &self.progress {
            Progress::Seeking(..) | Progress::Found(_) => debug::encode_no_entry(),
            _ => debug::encode_unknown(),
        }
    }

    fn full_body(&self) -> Vec<u8> {
        match &self.progress {
            Progress::Basics(basics) => basics.encode(),
            Progress::Counters(counters) => debug::encode_counters(counters),
            Progress::Seeking(List::Peers, _) => PeerView::none(),
            Progress::Seeking(..) => ConnectionView::none(),
            Progress::Found(entry) => entry.clone(),
            Progress::Unknown => debug::encode_unknown(),
        }
    }
}
