//! All disk I/O behind one small trait, with a real and a deliberately unreliable implementation.
