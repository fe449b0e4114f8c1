//! The directory blob (2 KiB pages) that clients fetch.
