//! Digests of volumes for comparison with manifests.

use super::volumes::{Open, Step, Volumes, failed};
use afs_format::dump::DumpError;
use afs_idl::{ClientConnection, cellar, vol};
use base::AbortCode;
use cell_client::Interface;
use jobs::Place;
use promote::{Digest, PromotionError, digest};

impl Volumes<'_> {
    /// Returns the digest of a volume: computed by its server, or locally from a dump if the server cannot
    /// compute it.
    pub(super) fn digest(&self, place: Place, volume: u32) -> Step<Digest> {
        let open = self.open(place, volume, vol::attach_mode::BUSY)?;
        let own = self.cell.connection(place.server, Interface::CellarVolumes);
        let digest = match self.computed(&*own, &open, place)? {
            Some(digest) => digest,
            None => self.read_back(&open, place)?,
        };
        open.end()?;
        Ok(digest)
    }

    /// Requests the digest; `None` if the server cannot compute it.
    fn computed(&self, own: &dyn ClientConnection, open: &Open, place: Place) -> Step<Option<Digest>> {
        let request = cellar::DigestContentsRequest { transaction: open.id };
        let mut is_asked_first = true;
        loop {
            self.check_cancelled()?;
            match cellar::digest_contents(own, &request) {
                Ok(reply) if reply.done != 0 => {
                    let cellar::DigestContentsReply { digest: hash, vnodes, bytes, .. } = reply;
                    return Ok(Some(Digest { hash, vnodes, bytes }));
                }
                Ok(_) => is_asked_first = false,
                // OpenAFS's servers do not know the service. A dump will reveal any other error.
                Err(_) if is_asked_first => return Ok(None),
                Err(code) => {
                    return Err(failed(format!("digest the volume {} on {place}", open.volume))(code));
                }
            }
        }
    }

    /// Computes the digest from a dump of the whole volume.
    fn read_back(&self, open: &Open, place: Place) -> Step<Digest> {
        let volume = open.volume;
        let doing = || format!("read the volume {volume} on {place}");
        let request = vol::DumpRequest { transaction: open.id, from_date: 0 };
        let mut found = None;
        let dumped = vol::dump(&*open.server, &request, |stream| {
            let read = digest::of_dump(|most| self.piece(stream, most));
            let code = if read.is_ok() { Ok(()) } else { Err(AbortCode::RX_USER_ABORT) };
            found = Some(read);
            code?;
            // Nothing follows the end mark.
            self.piece(stream, 1).map(drop)
        });
        match found {
            Some(Ok(digest)) => dumped.map(|_| digest).map_err(failed(doing())),
            Some(Err(DumpError::Source(code))) => Err(failed(doing())(code)),
            Some(Err(error)) => {
                Err(PromotionError::Passing(format!("the volume {volume} on {place}: {error}")))
            }
            None => Err(failed(doing())(dumped.err().unwrap_or(AbortCode::RX_CALL_DEAD))),
        }
    }
}
