//! The source of an endpoint's randomness.

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

/// The seed of an endpoint, from which epochs, connection ids, serials, nonces and the keys of cookies are
/// derived. In production it consists of 256 unpredictable bits. Simulations expand a small number.
#[derive(Clone, Copy)]
pub struct Seed([u8; 32]);

impl Seed {
    pub(crate) fn generator(self) -> ChaCha12Rng {
        ChaCha12Rng::from_seed(self.0)
    }
}

impl From<[u8; 32]> for Seed {
    fn from(bytes: [u8; 32]) -> Seed {
        Seed(bytes)
    }
}

/// Seeds of simulations only: 64 bits can be found by exhaustive search.
impl From<u64> for Seed {
    fn from(number: u64) -> Seed {
        Seed(ChaCha12Rng::seed_from_u64(number).get_seed())
    }
}
