//! Requests of rxdebug. They concern a whole server, but reach only one of its endpoints, so every endpoint
//! adds its part of the answer.

use crate::debug::{self, Basics, ConnectionView, PeerView, Question};
use crate::header::Header;
use crate::path::Path;
use crate::statistics::Statistics;

/// An rxdebug request that passes through the endpoints of a server.
///
/// [`crate::Endpoint::inquire`] of the endpoint that received the DEBUG packet creates it,
/// [`crate::Endpoint::examine`] of every endpoint, always in the same order, adds to it, and
/// [`crate::Endpoint::answer`] of the first sends the result. The entries of a list are those of the first
/// endpoint, then those of the second, and so on.
#[derive(Debug)]
pub struct Inquiry {
    pub(crate) path: Path,
    pub(crate) header: Header,
    pub(crate) progress: Progress,
    /// Maximum length of the answer's body, in bytes.
    pub(crate) room: usize,
}

/// The part of the answer collected so far.
#[derive(Debug)]
pub(crate) enum Progress {
    Basics(Basics),
    Counters(Box<Statistics>),
    /// The list that is being searched, and the number of entries still to skip.
    Seeking(List, u32),
    Found(Vec<u8>),
    Unknown,
}

/// A list whose entries are requested one by one.
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

    /// Returns the body of the answer. If it exceeds the maximum length, the body reports that the entry, or
    /// the kind of request, does not exist.
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
