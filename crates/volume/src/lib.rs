//! Volumes, vnodes, directories, quotas and epochs on a store.
